"""Placement on several servers: over one PostgreSQL with a streaming replica, and on Galera.

Server groups of one worker each on the loopback, beside one server with as many workers. What one
machine cannot show is left to the page docs/understand/many-servers.md, which does its sums with
these rows.
"""

import contextlib
import secrets
import statistics
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

import psycopg
from rich.console import Console

from benchmarks.claims.clients import Outcome, Target, Worker, make_ample_hosts
from benchmarks.claims.rates import ask_and_claim
from benchmarks.floors.table import Row
from benchmarks.floors.table import show as show_rows
from benchmarks.parts.client import Client
from benchmarks.parts.postgresql import (
    postmaster_pid,
    replica,
    temporary_postgresql,
)
from benchmarks.parts.servers import Server, cpu_seconds, create_database_of, make_schema, ours
from benchmarks.reads.growth import fill
from placement_server.candidates.index.feed import Feed
from placement_server.store.allocations import allocations
from placement_server.store.records import ConsumerWrite
from placement_server.store.store import Store
from tests.fixtures.galera import galera_cluster

GROUPS: Final = 3
_CLIENTS: Final = 6
_HOSTS: Final = 64
_ROUNDS: Final = 3


@dataclass(frozen=True)
class Groups(Target):
    """Several servers, of which the clients use each its own."""

    others: tuple[Server, ...] = ()
    other_databases: tuple[int, ...] = ()

    @property
    def servers(self) -> tuple[Server, ...]:
        return (self.server, *self.others)

    def cpu_seconds(self) -> tuple[float, float]:
        databases = (self.database_pid, *self.other_databases)
        return (
            sum(server.cpu_seconds() for server in self.servers),
            sum(cpu_seconds(pid) for pid in databases),
        )

    def each_its_own(self, worker: Worker) -> Worker:
        """Let clients use the servers in turn."""
        return lambda _client, index: worker(
            Client(self.servers[index % len(self.servers)].url), index
        )


def rows(*, quick: bool) -> Iterator[Row]:
    """Measure PostgreSQL, what workers do with the claims of others, the replica, and Galera."""
    claims = 60 if quick else 600
    with temporary_postgresql("groups-") as (cluster, directory):
        yield from _on_postgresql(cluster, directory, claims)
        yield from _claims_of_others(cluster, 10_000 if quick else 100_000)
        with replica(cluster, directory / "replica") as copy:
            yield from _of_replica(cluster, copy)
    yield from _on_galera(claims)


def _claims(targets: dict[str, Groups], claims: int) -> dict[str, Outcome]:
    """Claims by turns; the cheapest round of each."""
    rounds: dict[str, list[Outcome]] = {name: [] for name in targets}
    for _ in range(_ROUNDS):
        for name, target in targets.items():
            rounds[name].append(ask_and_claim(target, name, _CLIENTS, claims, target.each_its_own))
    return {name: min(some, key=lambda outcome: outcome.cpu_ms) for name, some in rounds.items()}


def _fill(server: Server) -> None:
    make_ample_hosts(Client(server.url), _HOSTS)


def _on_postgresql(cluster: str, directory: Path, claims: int) -> Iterator[Row]:
    pid = postmaster_pid(directory / "postgresql")
    with contextlib.ExitStack() as stack:
        url = create_database_of(cluster, "ours", "alone")
        alone = stack.enter_context(ours(directory / "alone", url, GROUPS, synchronise=False))
        url = f"postgresql+psycopg:{cluster}/ours"
        make_schema(url)
        groups = [
            stack.enter_context(ours(directory / f"group-{number}", url, 1, synchronise=False))
            for number in range(GROUPS)
        ]
        _fill(alone)
        _fill(groups[0])
        outcomes = _claims(
            {"alone": Groups(alone, pid), "groups": Groups(groups[0], pid, tuple(groups[1:]))},
            claims,
        )
    title = f"PostgreSQL, {GROUPS} servers of one worker beside one of {GROUPS}: a claim"
    yield Row(title, "CPU ms", outcomes["groups"].cpu_ms, outcomes["alone"].cpu_ms, 1.25)
    yield Row(
        f"{title}, database",
        "CPU ms",
        outcomes["groups"].database_ms,
        outcomes["alone"].database_ms,
    )
    yield Row("PostgreSQL: conflicts", "", outcomes["groups"].conflicts, most=0)


def _claims_of_others(cluster: str, hosts: int) -> Iterator[Row]:
    """What a worker does for each claim that another one has made."""
    url = create_database_of(cluster, "ours", "many")
    fill(f"{cluster}/many", hosts)
    store = Store.open(url)
    feed = Feed(store)
    names = [tree.providers[0].uuid for tree in islice(feed.index().trees(), 200)]
    for together in (1, 10, 100):
        costs = []
        for _ in range(8):
            for number in range(together):
                owner = ConsumerWrite(
                    str(uuid.uuid4()), {names[number]: {"VCPU": 1}}, "project", "user", None, None
                )
                store.write(allocations.write, [owner])
            started_at = time.process_time()
            feed.index()
            costs.append(1000 * (time.process_time() - started_at) / together)
        yield Row(
            f"{hosts:,} hosts: one of {together} claims by others, before a search",
            "CPU ms",
            min(costs),
        )
    store.close()


def _of_replica(cluster: str, replica_cluster: str) -> Iterator[Row]:
    """How far it is behind, and what a search on it alone would miss."""
    with contextlib.ExitStack() as stack:
        primary = stack.enter_context(
            psycopg.connect(f"postgresql:{cluster}/ours", autocommit=True)
        )
        copy = stack.enter_context(
            psycopg.connect(f"postgresql:{replica_cluster}/ours", autocommit=True)
        )
        delays = [_delay(primary, copy) for _ in range(50)]
        yield Row("replica: a change record is there after", "ms", statistics.median(delays))
        copy.execute("SELECT pg_wal_replay_pause()")
        missing_count = 0
        for _ in range(10):
            written_id = _record(primary)
            found_row = copy.execute(
                "SELECT 1 FROM changes WHERE id = %s", (written_id,)
            ).fetchone()
            missing_count += found_row is None
        copy.execute("SELECT pg_wal_replay_resume()")
        yield Row("replica that is behind: acknowledged writes it lacks, of 10", "", missing_count)


def _record(connection: "psycopg.Connection[Any]") -> int:
    row = connection.execute(
        "INSERT INTO changes (created_at, root_provider_id, kind, write_id)"
        " VALUES (now(), 0, 3, 1) RETURNING id"
    ).fetchone()
    assert row is not None
    return int(row[0])


def _delay(primary: "psycopg.Connection[Any]", copy: "psycopg.Connection[Any]") -> float:
    written_id, started_at = _record(primary), time.monotonic()
    while not copy.execute("SELECT 1 FROM changes WHERE id = %s", (written_id,)).fetchone():
        pass
    return 1000 * (time.monotonic() - started_at)


def _on_galera(claims: int) -> Iterator[Row]:
    """A server at each of three nodes, all of which take writes, and three at one of them."""
    wait = "[placement_database]\nmysql_wsrep_sync_wait = 1\n"
    # the path of a socket is short
    home = Path("/tmp") / f"groups-{secrets.token_hex(4)}"
    with (
        tempfile.TemporaryDirectory(prefix="groups-", dir="/tmp") as name,
        galera_cluster(home, GROUPS) as nodes,
        contextlib.ExitStack() as stack,
    ):
        targets = {}
        pids = tuple(node.pid for node in nodes)
        for title, places in (("one node", [0] * GROUPS), ("each its node", range(GROUPS))):
            database = title.replace(" ", "_")
            with nodes[0].administrator() as connection:
                connection.exec_driver_sql(f"CREATE DATABASE {database}")
            servers = [
                stack.enter_context(
                    ours(Path(name) / f"{database}-{number}", nodes[place].url(database), 1, wait)
                )
                for number, place in enumerate(places)
            ]
            _fill(servers[0])
            targets[title] = Groups(servers[0], pids[0], tuple(servers[1:]), pids[1:])
        outcomes = _claims(targets, claims)
    for title, outcome in outcomes.items():
        yield Row(f"Galera of three, servers at {title}: a claim", "CPU ms", outcome.cpu_ms)
        yield Row(f"Galera of three, {title}: all nodes", "CPU ms", outcome.database_ms)
        yield Row(f"Galera of three, {title}: claims", "1/s", outcome.rate)
        yield Row(f"Galera of three, {title}: conflicts", "", outcome.conflicts)


def show(console: Console, quick: bool) -> bool:
    """Measure, and print the rows; whether their bounds hold."""
    found_rows = []
    for row in rows(quick=quick):
        console.print("  ".join(filter(None, row.cells())), style="dim")
        found_rows.append(row)
    return show_rows(console, "Placement on several servers", found_rows)
