"""Many hosts, written straight into a database, and what a server costs with them.

So 100,000 of them take seconds. One worker
process, so that its memory and its cold start are seen by themselves. A limited query may grow by
array scans over all hosts, and by nothing else.
"""

import contextlib
import sqlite3
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.parts.client import Client
from benchmarks.parts.servers import Server, family
from benchmarks.parts.worlds import AGGREGATE, TRAIT
from benchmarks.reads.rows import AMOUNTS, FLAT_QUERY, NOTHING

TRAITS_OF_HOST = 9
_BATCH = 10
_LEAST_BATCHES = 3

_NUMBERS = (
    "WITH RECURSIVE numbers (n) AS"
    " (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {hosts}) "
)
# The hosts of `benchmarks.parts.worlds`, with the traits that a real host reports.
_STATEMENTS = (
    "INSERT INTO placement_aggregates (id, uuid) VALUES (1, '{aggregate}')",
    _NUMBERS + "INSERT INTO resource_providers (id, uuid, name, generation, root_provider_id)"
    " SELECT n, {uuid}, 'host-' || n, 0, n FROM numbers",
    _NUMBERS + "INSERT INTO inventories (resource_provider_id, resource_class_id, total, reserved,"
    " min_unit, max_unit, step_size, allocation_ratio, capacity, used)"
    " SELECT n, c.id, t.total, 0, 1, t.total, 1, 1, t.total, 0 FROM numbers,"
    " (SELECT 'VCPU' AS name, 64 AS total UNION SELECT 'MEMORY_MB', 65536"
    "  UNION SELECT 'DISK_GB', 1000) t JOIN resource_classes c ON c.name = t.name",
    _NUMBERS + "INSERT INTO resource_provider_traits (resource_provider_id, trait_id)"
    " SELECT n, t.id FROM numbers, (SELECT id FROM traits WHERE name = '{trait}'"
    "  OR name LIKE 'HW^_CPU^_X86^_SSE%' ESCAPE '^' ORDER BY name LIMIT {traits}) t",
    _NUMBERS + "INSERT INTO resource_provider_aggregates (resource_provider_id, aggregate_id)"
    " SELECT n, 1 FROM numbers",
    "ANALYZE",
)
_UUID_OF_POSTGRESQL = "gen_random_uuid()"
_UUID_OF_SQLITE = "printf('%08x-0000-4000-8000-%012x', abs(random()) % 4294967296, n)"


@dataclass(frozen=True)
class Size:
    """What one number of hosts costs.

    :param cold_s: the first search of a fresh worker, which reads everything from the database.
    :param changed_ms: how much longer a search takes for each host that was changed before it.
    """

    hosts: int
    cold_s: float
    cold_cpu_s: float
    resident_mib: float
    few_ms: float
    many_ms: float
    nothing_ms: float
    changed_ms: float


def fill(url: str, hosts: int) -> None:
    """Write so many hosts into an empty PostgreSQL database at `//user@host:port/name`."""
    with psycopg.connect(f"postgresql:{url}", autocommit=True) as connection:
        for statement in _statements(hosts, _UUID_OF_POSTGRESQL):
            connection.execute(statement)


def fill_file(path: Path, hosts: int) -> None:
    """Write so many hosts into the empty SQLite database of a file."""
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        for statement in _statements(hosts, _UUID_OF_SQLITE):
            connection.execute(statement)


def _statements(hosts: int, uuid: str) -> Iterator[str]:
    for statement in _STATEMENTS:
        yield statement.format(
            hosts=hosts, uuid=uuid, aggregate=AGGREGATE, trait=TRAIT, traits=TRAITS_OF_HOST
        )


def _cpu_ms(server: Server, client: Client, path: str, seconds: float) -> float:
    """CPU of the server for one request, the best of batches that fit in some seconds.

    Other work on the machine only ever adds to it.
    """
    costs: list[float] = []
    ends = time.perf_counter() + seconds
    while len(costs) < _LEAST_BATCHES or time.perf_counter() < ends:
        cpu = server.cpu_seconds()
        for number in range(len(costs) * _BATCH, (len(costs) + 1) * _BATCH):
            client.must("GET", path.format(1 + number % AMOUNTS))
        costs.append(1000 * (server.cpu_seconds() - cpu) / _BATCH)
    return min(costs)


def _changed_ms(server: Server, client: Client, hosts: list[str], path: str) -> float:
    """How much more CPU a search takes after a change of one host, median of pairs."""
    extra = []
    for number, host in enumerate(hosts):
        inventories = {"VCPU": {"total": 64 + number % 2}, "MEMORY_MB": {"total": 65536}}
        client.must(
            "PUT",
            f"/resource_providers/{host}/inventories",
            {
                "resource_provider_generation": 0,
                "inventories": {**inventories, "DISK_GB": {"total": 1000}},
            },
        )
        times = []
        for turn in range(2):
            start = server.cpu_seconds()
            client.must("GET", path.format(1 + (2 * number + turn) % AMOUNTS))
            times.append(server.cpu_seconds() - start)
        extra.append(times[0] - times[1])
    return 1000 * statistics.median(extra)


@dataclass(frozen=True)
class First:
    """The first search of a fresh worker.

    :ivar idle_mib: the memory of the worker before it.
    """

    seconds: float
    cpu_s: float
    idle_mib: float
    answer: Any


def first_search(server: Server) -> First:
    """Measure a fresh server when it is asked for candidates."""
    client = Client(server.url)
    client.must("GET", "/resource_classes")
    idle = server.resident_mib()
    cpu, start = server.cpu_seconds(), time.perf_counter()
    answer = client.must("GET", f"{FLAT_QUERY}&limit=100".format(1))
    return First(time.perf_counter() - start, server.cpu_seconds() - cpu, idle, answer)


def measure(server: Server, hosts: int, seconds: float) -> Size:
    """Measure one fresh server."""
    first = first_search(server)
    client = Client(server.url)
    few = _cpu_ms(server, client, f"{FLAT_QUERY}&limit=10", seconds)
    many = _cpu_ms(server, client, f"{FLAT_QUERY}&limit=1000", seconds)
    nothing = _cpu_ms(server, client, NOTHING, seconds)
    changed_ms = _changed_ms(
        server, client, list(first.answer["provider_summaries"]), f"{FLAT_QUERY}&limit=10"
    )
    resident = server.resident_mib()
    assert len(family(server.pid)) >= 2, "a parent and its worker"
    return Size(
        hosts,
        first.seconds,
        first.cpu_s,
        resident - first.idle_mib,
        few,
        many,
        nothing,
        changed_ms,
    )
