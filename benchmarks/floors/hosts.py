"""Many hosts in the index of one worker, beside the driver that only reads their rows.

In the database there are 100,000; in memory alone a million, to see what breaks first.
"""

import contextlib
import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import psycopg

from benchmarks.floors.table import Row
from benchmarks.in_process import searches
from benchmarks.parts.postgresql import temporary_postgresql
from benchmarks.parts.servers import make_schema, ours
from benchmarks.reads.many_hosts import fill, fill_file, first_search, measure
from placement_server.candidates.index.index import IndexWriter

_ROWS: Final = (
    "SELECT id, uuid, parent_provider_id, root_provider_id FROM resource_providers",
    "SELECT resource_provider_id, resource_class_id, total, reserved, min_unit, max_unit, "
    "step_size, allocation_ratio, capacity, used FROM inventories",
    "SELECT resource_provider_id, trait_id FROM resource_provider_traits",
    "SELECT a.resource_provider_id, p.uuid FROM resource_provider_aggregates a "
    "JOIN placement_aggregates p ON p.id = a.aggregate_id",
)
"""All that the index is made of, as its first reading does."""


def rows(*, quick: bool) -> Iterator[Row]:
    """Measure both kinds."""
    hosts = 5_000 if quick else 100_000
    yield from _on_postgresql(hosts)
    yield from _on_sqlite(hosts)
    yield from _in_memory(50_000 if quick else 1_000_000)


def _on_postgresql(hosts: int) -> Iterator[Row]:
    with temporary_postgresql("hosts-") as (cluster, directory):
        yield from _in_a_database(
            f"{hosts:,} hosts, PostgreSQL",
            directory,
            f"postgresql+psycopg:{cluster}/ours",
            hosts,
            lambda: fill(f"{cluster}/ours", hosts),
            lambda: psycopg.connect(f"postgresql:{cluster}/ours"),
        )


def _on_sqlite(hosts: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="hosts-", dir="/tmp") as name:
        file = Path(name) / "placement.db"
        yield from _in_a_database(
            f"{hosts:,} hosts, SQLite",
            Path(name),
            f"sqlite:///{file}",
            hosts,
            lambda: fill_file(file, hosts),
            lambda: sqlite3.connect(file),
        )


def _in_a_database(
    data: str,
    directory: Path,
    url: str,
    hosts: int,
    fill_it: Callable[[], None],
    connect: Callable[[], Any],
) -> Iterator[Row]:
    make_schema(url)
    fill_it()
    reading = min(_reading(connect) for _ in range(3))
    saved_directory = directory / "saved"
    saved_directory.mkdir()
    option = f"[placement_server]\nsaved_index_path = {saved_directory}\n"
    with ours(directory / "cold", url, 1, option, synchronise=False) as server:
        size = measure(server, hosts, 0.5 if hosts < 100_000 else 2.0)
        _await(saved_directory / "index")
    with ours(directory / "warm", url, 1, option, synchronise=False) as server:
        warm = first_search(server)
    # With few hosts the parts that do not grow with them are most of it.
    memory = size.resident_mib * 1024 / hosts
    most = 2.0 if hosts >= 100_000 else None
    once = "1"
    yield Row(
        "cold start",
        "CPU s",
        size.cold_cpu_s,
        reading,
        2.0,
        data=data,
        runs="1, floor best of 3",
    )
    yield Row("start with a saved index", "CPU s", warm.cpu_s, most=1.0, data=data, runs=once)
    yield Row("the same by the clock", "s", warm.seconds, data=data, runs=once)
    yield Row("memory of each", "KB", memory, most=most, data=data, runs=once)
    yield Row("limit=10", "CPU ms", size.few_ms, most=2.0, data=data, runs="best part of many")
    yield Row(
        "after one changed host",
        "CPU ms more",
        size.changed_ms,
        most=2.0,
        data=data,
        runs="median of pairs",
    )


def _await(file: Path) -> None:
    """Wait for what a worker writes beside its requests."""
    ends = time.monotonic() + 60
    while not file.exists():
        if time.monotonic() > ends:
            raise RuntimeError(f"{file} was not written within a minute")
        time.sleep(0.1)


def _reading(connect: Callable[[], Any]) -> float:
    """CPU seconds in which the driver alone reads the rows."""
    with contextlib.closing(connect()) as connection:
        started_at = time.process_time()
        for statement in _ROWS:
            cursor = connection.cursor()
            cursor.execute(statement)
            cursor.fetchall()
        return time.process_time() - started_at


def _in_memory(hosts: int) -> Iterator[Row]:
    # A process of its own: what this one needs is not the index's.
    command = [sys.executable, "-m", "benchmarks.floors.hosts", str(hosts)]
    measurement = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    share = hosts / 1_000_000
    for name, unit, key, most, runs in (
        ("index", "GiB", "gib", 2.5 * share + 0.1, "1"),
        ("load", "CPU s", "load_s", None, "1"),
        ("limit=10", "CPU ms", "few_ms", 20.0, "median of 15"),
        ("limit=1000", "CPU ms", "many_ms", None, "median of 15"),
        ("one changed host", "CPU ms", "changed_ms", None, "best of 15"),
    ):
        yield Row(
            name, unit, measurement[key], most=most, data=f"{hosts:,} hosts in memory", runs=runs
        )


def main() -> None:
    """Generate hosts, and print what an index of them costs."""
    hosts = int(sys.argv[1])
    started_at = time.process_time()
    writer = IndexWriter(searches.NAMES, list(searches.flat_hosts(hosts)))
    load = time.process_time() - started_at
    few, _ = searches.measure(writer.index, searches.FLAT + "&limit=10", 15)
    many, _ = searches.measure(writer.index, searches.FLAT + "&limit=1000", 15)
    changes = []
    for tree in searches.flat_hosts(15):
        started_at = time.process_time()
        writer.apply({tree.root_id: tree})
        changes.append(time.process_time() - started_at)
    print(
        json.dumps(
            {
                "gib": resident_gib(),
                "load_s": load,
                "few_ms": few,
                "many_ms": many,
                "changed_ms": 1000 * min(changes),
            }
        )
    )


def resident_gib() -> float:
    """Resident now: the rows that the index was made from are gone."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 2**20
    raise RuntimeError("/proc/self/status has no VmRSS")


if __name__ == "__main__":
    main()
