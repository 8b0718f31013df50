"""A month of a made-up cloud in simulated time: what is refused, also where room is made at night.

The same guests come either way. At night a few move, so that what is refused most fits on one host
more, and on one more, as long as there are moves left.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import parse_qsl
from uuid import UUID

import numpy as np
from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from benchmarks.parts.drawing import drawing
from compute_agent.fitting.guest import Guest, Node, Wish
from compute_agent.fitting.host import Cell, Core, Device, Host, without
from compute_agent.fitting.plan import Plan
from compute_agent.fitting.planner import plan
from placement_server.candidates.index.writer import IndexWriter
from placement_server.candidates.limits import Account, SearchEffort
from placement_server.candidates.make_room.holdings import HeldAmounts
from placement_server.candidates.make_room.plan import Bounds
from placement_server.candidates.make_room.question import Question, find_room
from placement_server.candidates.query import parser as queries
from placement_server.store.changes.snapshot import InventoryRow, NameRows, ProviderRow, TreeRows

CELLS: Final = range(4)
LOAD: Final = 16.0  # guests of each host on average, if none was refused
STAY_HOURS: Final = 96.0


def _guest(*nodes: Node, threads: str = "", **wishes: int) -> Guest:
    classes = [name for name, count in wishes.items() for _ in range(count)]
    near = [Wish(str(i), name, nearness="required") for i, name in enumerate(classes)]
    return Guest(nodes, threads=threads, wishes=tuple(near))


def _node(cpus: int, mib: int = 0, page_size: int = 0) -> Node:
    return Node(pinned=cpus, memory_mib=mib or 2000 * cpus, page_sizes=frozenset((page_size,)))


FLAVORS: Final[Mapping[str, tuple[float, Guest]]] = {
    "2 CPUs": (30, _guest(_node(2))),
    "3 CPUs": (10, _guest(_node(3))),
    "4 CPUs": (14, _guest(_node(4))),
    "8 CPUs, whole cores": (10, _guest(_node(8), threads="require")),
    "much memory": (8, _guest(_node(2, 24_000))),
    "huge pages": (8, _guest(_node(4, 8000, 2048))),
    "two nodes": (8, _guest(_node(4), _node(4))),
    "GPU": (4.5, _guest(_node(4), GPU=1)),
    "two GPUs": (2.25, _guest(_node(6), GPU=2)),
    "VFs": (6, _guest(_node(4), VF=2)),
}

_NEAR: Final = "same_subtree=_C,_G&group_policy=none"
NIGHTLY: Final = {
    "two GPUs": f"resources_C=PCPU:6,MEMORY_MB:12000&resources_G=VGPU:2&{_NEAR}",
    "8 CPUs, whole cores": "resources_C=PCPU:8,MEMORY_MB:16000&group_policy=none",
    "GPU": f"resources_C=PCPU:4,MEMORY_MB:8000&resources_G=VGPU:1&{_NEAR}",
    "two nodes": "resources_C=PCPU:4,MEMORY_MB:8000&resources_D=PCPU:4,MEMORY_MB:8000"
    "&group_policy=isolate",
}
MOVES: Final = 20
CLASSES: Final = {"PCPU": 1, "MEMORY_MB": 2, "CUSTOM_PAGES": 3, "VGPU": 4, "SRIOV_NET_VF": 5}
_OF_DEVICE: Final = {"GPU": CLASSES["VGPU"], "VF": CLASSES["SRIOV_NET_VF"]}
Used = Counter[tuple[int, int, int]]  # by guest, provider and class


class _Host:
    """A host, and the plans of its guests by their number, with their flavors."""

    def __init__(self, number: int) -> None:
        cores = [Core((cpu, cpu + 1), 2, cpu // 8) for cpu in range(0, 64, 2)]
        gpus = [
            Device(f"gpu{i}", "GPU", 1, cell=i // 4 * 2, link_group=f"{i // 2}") for i in range(8)
        ]
        nics = [Device(f"nic{i}", "VF", 8, cell=2 * i + 1) for i in range(2)]
        self.root = 100 * number + 1
        self._cores = [tuple(cores[8 * cell : 8 * cell + 8]) for cell in CELLS]
        self._devices = [gpus, nics, nics, nics, []][number % 5]
        self.guests: dict[int, tuple[str, Plan]] = {}
        self.answers: dict[str, Plan | None] = {}
        self.free = Host()
        self.change()

    def change(self) -> None:
        """Sum up what is free after a guest came or left."""
        parts = [part for _flavor, plan in self.guests.values() for part in plan.parts]
        given = Counter(u.device for _flavor, plan in self.guests.values() for u in plan.given)
        cells = []
        for cell in CELLS:
            own = [part for part in parts if part.cell == cell]
            huge = sum(part.memory_mib for part in own if part.page_size_kib)
            taken = [cpu for part in own for cpu in part.pinned_cpus]
            cells.append(
                Cell(
                    cell,
                    without(self._cores[cell], taken),
                    16 - len(taken),
                    memory_mib=64_000 + huge - sum(part.memory_mib for part in own),
                    pages_mib={2048: 16_000 - huge},
                    distances={o: (32, 12, 10)[(o // 2 == cell // 2) + (o == cell)] for o in CELLS},
                )
            )
        devices = (
            replace(d, free=d.free - given[d.id], used=given[d.id] > 0) for d in self._devices
        )
        self.free = Host(tuple(cells), tuple(devices))
        self.answers = {}

    def take(self, guest: int, flavor: str) -> bool:
        """Place a guest here, if it fits."""
        answer = self.plan(flavor)
        if answer is not None:
            self.guests[guest] = flavor, answer
            self.change()
        return answer is not None

    def plan(self, flavor: str) -> Plan | None:
        """Return what a guest of a flavor would get now."""
        if flavor not in self.answers:
            answer = plan(self.free, FLAVORS[flavor][1])
            self.answers[flavor] = answer if isinstance(answer, Plan) else None
        return self.answers[flavor]

    def weight(self, answer: Plan) -> float:
        """Return the larger the more is free, as by the defaults of the weighers."""
        cells = self.free.cells
        weight = sum(c.pinnable for c in cells) / 64 + sum(c.memory_mib for c in cells) / 256_000
        return weight - 0.25 * (answer.cost.broken_links + answer.cost.device_cells)

    def tree(self, held: Used) -> TreeRows:
        """Return its tree as placement has it; linked GPUs are units of one provider.

        :param held: gets what its guests hold.
        """
        cells = {cell: self.root + 1 + cell for cell in CELLS}
        stock = {row: {1: 16, 2: 64_000, 3: 16_000} for row in cells.values()}
        parent, row_of = dict.fromkeys(stock, self.root), {}
        for number, device in enumerate(self._devices):
            row = self.root + 10 + (int(device.link_group) if device.link_group else number)
            row_of[device.id], parent[row] = row, cells[device.cell or 0]
            stock[row] = {_OF_DEVICE[device.resource_class]: 2 if device.link_group else 8}
        own = Used()
        for guest, (_flavor, answer) in self.guests.items():
            for part in answer.parts:
                own[guest, cells[part.cell], 1] += len(part.pinned_cpus)
                own[guest, cells[part.cell], 3 if part.page_size_kib else 2] += part.memory_mib
            for unit in answer.given:
                own[guest, row_of[unit.device], _OF_DEVICE[unit.resource_class]] += unit.amount
        held.update(own)
        used = Counter[tuple[int, int]]()
        for (_guest_number, row, class_id), amount in own.items():
            used[row, class_id] += amount
        rows = [ProviderRow(self.root, str(UUID(int=self.root)), None, self.root, (), (), ())]
        for row in sorted(stock):
            inventories = tuple(
                InventoryRow(c, n, 0, 1, n, 1, 1.0, n, used[row, c]) for c, n in stock[row].items()
            )
            uuid = str(UUID(int=row))
            rows.append(ProviderRow(row, uuid, parent[row], self.root, inventories, (), ()))
        return TreeRows(self.root, tuple(rows))


def _night(fleet: list[_Host], places: dict[int, _Host], most: int) -> int:
    """Make room for each flavor on hosts that have none, one after the other; return the moves."""
    made, asked = 0, list(NIGHTLY)
    full: dict[str, set[str]] = {flavor: set() for flavor in asked}
    while asked and made < most:
        flavor = asked.pop(0)
        held = Used()
        index = IndexWriter(NameRows(CLASSES, {}), [host.tree(held) for host in fleet]).index
        guests = sorted({guest for guest, _row, _class in held})
        number = {guest: at for at, guest in enumerate(guests)}
        rows = [(number[guest], row, c, n) for (guest, row, c), n in held.items() if n]
        columns = np.array(rows, np.int64).T
        query = queries.parse(parse_qsl(NIGHTLY[flavor]), (1, 39), extensions=True)
        with_room = {str(UUID(int=host.root)) for host in fleet if host.plan(flavor)}
        bounds = Bounds(most_moves=min(3, most - made), seconds=10)
        question = Question(query, bounds, avoided=tuple(with_room | full[flavor]))
        amounts = HeldAmounts(tuple(map(str, guests)), *columns)
        room = find_room(index, question, amounts, (), Account(), SearchEffort())
        if not room.plans:
            continue
        target = index.columns.uuid[room.plans[0].places[0].root]
        for move in room.plans[0].moves:
            guest = guests[move.consumer]
            old = places[guest]
            new = fleet[(int(UUID(index.columns.uuid[move.place.root])) - 1) // 100]
            if not new.take(guest, old.guests[guest][0]):
                break
            del old.guests[guest]
            old.change()
            places[guest], made = new, made + 1
        # a host whose planner does not see it so is not asked for again
        full[flavor].add(target)
        asked.append(flavor)
    return made


class Month(NamedTuple):
    """How many requests came and were refused, by flavor and by day; the moves of each night."""

    asked: Counter[str]
    refused: Counter[str]
    by_day: Counter[int]
    moves: list[int]


def month(most_moves: int, hosts: int, hours: float) -> Month:
    """Return what is refused of guests that come at random, and stay for four days on average."""
    chance, at, number = random.Random(36), 0.0, 0
    fleet, places = [_Host(number) for number in range(hosts)], dict[int, _Host]()
    leaving: list[tuple[float, int]] = []
    told = Month(Counter(), Counter(), Counter(), [])
    while (at := at + chance.expovariate(LOAD * hosts / STAY_HOURS)) < hours:
        [flavor] = chance.choices(list(FLAVORS), [share for share, _guest in FLAVORS.values()])
        number, end = number + 1, at + chance.expovariate(1 / STAY_HOURS)
        while leaving and leaving[0][0] <= at:
            host = places.pop(gone := heapq.heappop(leaving)[1])
            del host.guests[gone]
            host.change()
        if most_moves and at // 24 > len(told.moves):
            told.moves.append(_night(fleet, places, most_moves))
        told.asked[flavor] += 1
        fitting = [(host.weight(a), host) for host in fleet if (a := host.plan(flavor))]
        if not fitting:
            told.refused[flavor] += 1
            told.by_day[int(at // 24)] += 1
            continue
        places[number] = max(fitting, key=lambda choice: choice[0])[1]
        places[number].take(number, flavor)
        heapq.heappush(leaving, (end, number))
    return told


def show(console: Console, quick: bool, plot: Path | None) -> bool:
    """Print and plot what is refused without and with room made at night."""
    hosts, days = (20, 10) if quick else (200, 30)
    before, after = (month(most, hosts, 24.0 * days) for most in (0, MOVES))
    table = Table("refused", "as it is", "room made", title=f"{days} days of {hosts} hosts")
    for name, asked in before.asked.items():
        table.add_row(f"{name}, of {asked}", *(str(m.refused[name]) for m in (before, after)))
    totals = [m.refused.total() for m in (before, after)]
    table.add_row("all", *map(str, totals))
    table.add_row("moves in all nights", "0", str(sum(after.moves)))
    console.print(table)
    if plot is not None:
        plot.write_text(_lines(before, after, days))
    return totals[1] <= totals[0]


def _lines(before: Month, after: Month, days: int) -> str:
    """Return the refusals since the first day, in SVG."""
    sums = [list(accumulate(m.by_day[day] for day in range(days))) for m in (before, after)]
    names, most = ("as it is", f"{MOVES} moves a night"), max(1, *(own[-1] for own in sums))
    lines = {
        f"{name}: {own[-1]}": [(day / days, n / most) for day, n in enumerate([0, *own])]
        for name, own in zip(names, sums, strict=True)
    }
    return drawing(lines, f"refused since the first of {days} days")
