"""Many hosts in the index of one worker, beside the driver that only reads their rows."""

import contextlib
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import psycopg

from benchmarks.floors.table import Row
from benchmarks.parts.postgresql import temporary_postgresql
from benchmarks.parts.servers import make_schema, ours
from benchmarks.reads.many_hosts import fill, fill_file, first_search, measure

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
    with ours(directory / "cold", url, 1, synchronise=False) as server:
        size = measure(server, hosts, 0.5 if hosts < 100_000 else 2.0)
    cold_starts = [size.cold_cpu_s]
    for number in range(2):
        with ours(directory / f"cold-{number}", url, 1, synchronise=False) as server:
            cold_starts.append(first_search(server).cpu_s)
    with ours(directory / "saving", url, 1, option, synchronise=False) as server:
        first_search(server)
        _await(saved_directory / "index")
    with ours(directory / "warm", url, 1, option, synchronise=False) as server:
        warm = first_search(server)
    # With few hosts the parts that do not grow with them are most of it.
    memory = size.resident_mib * 1024 / hosts
    most = 2.0 if hosts >= 100_000 else None
    yield Row("cold start", "CPU s", min(cold_starts), reading, 2.0, data=data, runs="best of 3")
    yield Row("start with a saved index", "CPU s", warm.cpu_s, most=1.0, data=data, runs="1")
    yield Row("the same by the clock", "s", warm.seconds, data=data, runs="1")
    yield Row("memory of each", "KB", memory, most=most, data=data, runs="1")
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
