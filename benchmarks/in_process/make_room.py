"""Plans that make room in fleets that are 85 % full and more, and searches while they are made.

Plans: in process and without a database, processor time of one thread, from what consumers hold to
the plan. Searches: one client of a server with one worker, in turns alone and beside a client that
asks for plans all the time.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl

import numpy as np
import psycopg
import requests
from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from benchmarks.in_process.searches import (
    CLASS_IDS,
    NAMES,
    NESTED,
    VERSION,
    flat_hosts,
    nested_hosts,
)
from benchmarks.parts.client import HEADERS, Client
from benchmarks.parts.postgresql import temporary_postgresql
from benchmarks.parts.servers import make_schema, ours
from benchmarks.reads import many_hosts
from placement_server.candidates.index.writer import IndexWriter
from placement_server.candidates.limits import Account, SearchEffort
from placement_server.candidates.make_room.holdings import HeldAmounts
from placement_server.candidates.make_room.plan import Bounds
from placement_server.candidates.make_room.question import Question, find_room
from placement_server.candidates.query import parser as queries
from placement_server.store.changes.snapshot import ProviderRow, TreeRows

_VCPU, _MEMORY = CLASS_IDS["VCPU"], CLASS_IDS["MEMORY_MB"]
_GUESTS: Final = tuple((vcpu, vcpu * gib * 1024) for vcpu in (1, 2, 4, 8, 16) for gib in (2, 4))


@dataclass(frozen=True)
class _Row:
    """A fleet of so many hosts, how full it is, a query, and the most seconds that it may take."""

    kind: str
    hosts: int
    full: float
    query: str
    bound: float


_LARGE: Final = NESTED.replace("VCPU:2,MEMORY_MB:2048", "VCPU:{},MEMORY_MB:{}")
_ROWS: Final = (
    _Row("nested", 1_000, 0.85, _LARGE.format(8, 16_384), 1),
    _Row("nested", 1_000, 0.85, _LARGE.format(12, 24_576), 1),
    _Row("nested", 1_000, 0.85, _LARGE.format(16, 32_768), 5),
    _Row("nested", 1_000, 0.95, _LARGE.format(6, 12_288), 5),
    _Row("flat", 10_000, 0.85, "resources=VCPU:16,MEMORY_MB:98304", 1),
    _Row("flat", 10_000, 0.85, "resources=VCPU:32,MEMORY_MB:131072", 5),
)


class _Guests:
    """Guests of random sizes, until each cell or flat host is as full as wanted."""

    def __init__(self, full: float) -> None:
        self._full, self._dice = full, random.Random(1)
        self.rows: list[tuple[int, int, int, int]] = []
        self.count = 0

    def fill(self, tree: TreeRows) -> TreeRows:
        used: Counter[tuple[int, int]] = Counter()
        for provider in tree.providers:
            room = {entry.resource_class_id: entry.capacity for entry in provider.inventories}
            least = {class_id: (1 - self._full) * amount for class_id, amount in room.items()}
            while _VCPU in room and all(room[key] > least[key] for key in (_VCPU, _MEMORY)):
                sizes = [s for s in _GUESTS if s[0] <= room[_VCPU] and s[1] <= room[_MEMORY]]
                if not sizes:
                    break
                vcpu, memory = self._dice.choice(sizes)
                held = {(provider.id, _VCPU): vcpu, (provider.id, _MEMORY): memory}
                for key, amount in [*held.items(), *self._devices(tree, provider, used)]:
                    self.rows.append((self.count, *key, amount))
                    used[key] += amount
                self.count += 1
                room = {_VCPU: room[_VCPU] - vcpu, _MEMORY: room[_MEMORY] - memory}
        return TreeRows(
            tree.root_id,
            tuple(
                replace(
                    row,
                    inventories=tuple(
                        replace(entry, used=used[row.id, entry.resource_class_id])
                        for entry in row.inventories
                    ),
                )
                for row in tree.providers
            ),
        )

    def _devices(
        self, tree: TreeRows, cell: ProviderRow, used: Counter[tuple[int, int]]
    ) -> Iterable[tuple[tuple[int, int], int]]:
        """Sometimes take a GPU of the cell."""
        for row in tree.providers:
            key = row.id, CLASS_IDS["VGPU"]
            if row.parent_id == cell.id and row.inventories and self._dice.randrange(2):
                entry = row.inventories[0]
                if entry.resource_class_id == key[1] and used[key] < entry.capacity:
                    yield key, 1
                    return


def run(console: Console, quick: bool) -> bool:
    """Measure; return whether every plan takes no more than it may."""
    table = Table(title="Plans that make room: CPU seconds")
    headings = ("fleet", "full", "guests", "query", "moves", "MiB", "proved", "s", "bound", "")
    for heading in headings:
        table.add_column(heading)
    holds = True
    for row in _ROWS:
        hosts = row.hosts // 10 if quick else row.hosts
        guests = _Guests(row.full)
        trees = (flat_hosts if row.kind == "flat" else nested_hosts)(hosts)
        index = IndexWriter(NAMES, map(guests.fill, trees)).index
        columns = np.array(guests.rows, dtype=np.int64).T
        held = HeldAmounts(tuple(map(str, range(guests.count))), *columns)
        query = queries.parse(parse_qsl(row.query), VERSION, extensions=True)
        question = Question(query, Bounds(seconds=0.9 * row.bound))
        began = time.thread_time()
        account, effort = Account(), SearchEffort()
        room = find_room(index, question, held, (), account, effort, time.thread_time)
        seconds = time.thread_time() - began
        holds &= seconds <= row.bound
        plan = room.plans[0] if room.plans else None
        table.add_row(
            f"{row.kind} {hosts:,}",
            f"{row.full:.0%}",
            f"{guests.count:,}",
            row.query[:48],
            str(len(plan.moves)) if plan else "none",
            f"{plan.memory:,}" if plan else "",
            "yes" if room.is_proved else "no",
            f"{seconds:.2f}",
            f"{row.bound:g}",
            "holds" if seconds <= row.bound else "FAILS",
        )
    console.print(table)
    return _show_beside(console, 3 if quick else 20, quick) and holds


_GUESTS_OF_HOSTS: Final = """
INSERT INTO projects (id, external_id) VALUES (1, 'p');
INSERT INTO users (id, external_id) VALUES (1, 'u');
INSERT INTO consumers (id, uuid, project_id, user_id)
    SELECT n, gen_random_uuid(), 1, 1 FROM generate_series(1, 70000) n;
INSERT INTO allocations (consumer_id, resource_provider_id, resource_class_id, used)
    SELECT u.uuid, u.id % 10000 + 1, c.id, 8 FROM consumers u, resource_classes c
    WHERE c.name = 'VCPU';
UPDATE inventories SET used = 56 FROM resource_classes c WHERE c.id = resource_class_id
    AND c.name = 'VCPU';
"""
_SEARCH: Final = "/allocation_candidates?resources=VCPU:1&limit=10"


def _show_beside(console: Console, turns: int, quick: bool) -> bool:
    """Measure searches alone and beside plans; return whether they are no slower than 10 %."""
    times: dict[str, list[float]] = {"alone": [], "beside plans": []}
    with temporary_postgresql("room-") as (url, directory):
        make_schema(f"postgresql+psycopg:{url}/ours")
        many_hosts.fill(f"{url}/ours", 10_000)
        with psycopg.connect(f"postgresql:{url}/ours", autocommit=True) as database:
            database.execute(_GUESTS_OF_HOSTS)
        connection = f"postgresql+psycopg:{url}/ours"
        with ours(directory, connection, 1, threads=8, synchronise=False) as server:

            def plans() -> None:
                question = {"request": "resources=VCPU:24", "time_limit": 2}
                headers = HEADERS | {"OpenStack-API-Version": "placement 1.39, placement-ext 1.1"}
                while not stop.is_set():
                    requests.post(f"{server.url}/make_room", json=question, headers=headers)

            client = Client(server.url)
            client.must("GET", _SEARCH)
            for turn in range(2 * turns):
                name, stop = list(times)[turn % 2], threading.Event()
                with ThreadPoolExecutor(1) as pool:
                    if name != "alone":
                        pool.submit(plans)
                        time.sleep(1)
                    for _ in range(500):
                        began = time.perf_counter()
                        client.must("GET", _SEARCH)
                        times[name].append(1000 * (time.perf_counter() - began))
                        time.sleep(0.001)
                    stop.set()
    table = Table("searches", "p50, ms", "p90", "p99", "worst", title="One worker")
    for name, own in times.items():
        own.sort()
        cuts = [own[int(len(own) * cut)] for cut in (0.5, 0.9, 0.99)]
        table.add_row(name, *(f"{ms:.2f}" for ms in (*cuts, own[-1])))
    console.print(table)
    p90 = [own[int(len(own) * 0.9)] for own in times.values()]
    return quick or p90[1] <= 1.1 * p90[0]
