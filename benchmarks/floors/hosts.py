"""Many hosts in the index of one worker, beside the driver that only reads their rows.

In the database there are 100,000; in memory alone a million, to see what breaks first.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psycopg

from benchmarks.floors.table import Row
from benchmarks.in_process import searches
from benchmarks.parts.servers import ours, postgresql
from benchmarks.reads.growth import fill, measure
from placement_server.candidates.index.index import IndexWriter

#: All that the index is made of, as its first reading does.
_ROWS: Final = (
    "SELECT id, uuid, parent_provider_id, root_provider_id FROM resource_providers",
    "SELECT resource_provider_id, resource_class_id, total, reserved, min_unit, max_unit, "
    "step_size, allocation_ratio, capacity, used FROM inventories",
    "SELECT resource_provider_id, trait_id FROM resource_provider_traits",
    "SELECT a.resource_provider_id, p.uuid FROM resource_provider_aggregates a "
    "JOIN placement_aggregates p ON p.id = a.aggregate_id",
)


def rows(*, quick: bool) -> Iterator[Row]:
    """Measure both kinds."""
    yield from _in_the_database(10_000 if quick else 100_000)
    yield from _in_memory(100_000 if quick else 1_000_000)


def _in_the_database(hosts: int) -> Iterator[Row]:
    with (
        tempfile.TemporaryDirectory(prefix="hosts-", dir="/tmp") as name,
        postgresql(Path(name) / "postgresql") as cluster,
    ):
        directory = Path(name)
        directory.chmod(0o755)
        connection = f"postgresql+psycopg:{cluster}/ours"
        # The first start makes the schema, the second one is that of a fresh worker.
        with ours(directory / "schema", connection, 1):
            fill(f"{cluster}/ours", hosts)
        with ours(directory / "server", connection, 1) as server:
            size = measure(server, hosts, 2.0)
        reading = _reading(f"postgresql:{cluster}/ours")
    title = f"{hosts:,} hosts: "
    yield Row(f"{title}cold start", "CPU s", size.cold_cpu_s, reading, 2.0)
    yield Row(f"{title}memory of each", "KB", size.resident_mib * 1024 / hosts, most=2.0)
    yield Row(f"{title}limit=10", "CPU ms", size.few_ms, most=5.0)
    yield Row(f"{title}after one changed host", "ms more", size.changed_ms, most=2.0)


def _reading(url: str) -> float:
    """CPU seconds in which the driver alone reads the rows."""
    with psycopg.connect(url) as connection:
        begun = time.process_time()
        for statement in _ROWS:
            connection.execute(statement).fetchall()
        return time.process_time() - begun


def _in_memory(hosts: int) -> Iterator[Row]:
    # A process of its own: what this one needs is not the index's.
    command = [sys.executable, "-m", "benchmarks.floors.hosts", str(hosts)]
    told = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    title = f"{hosts:,} hosts in memory: "
    share = hosts / 1_000_000
    yield Row(f"{title}index", "GiB", told["gib"], most=2.5 * share + 0.1)
    yield Row(f"{title}load", "CPU s", told["load_s"])
    yield Row(f"{title}limit=10", "CPU ms", told["few_ms"], most=20.0)
    yield Row(f"{title}limit=1000", "CPU ms", told["many_ms"])
    yield Row(f"{title}one changed host", "CPU ms", told["changed_ms"])


def main() -> None:
    """Generate hosts, and print what an index of them costs."""
    hosts = int(sys.argv[1])
    begun = time.process_time()
    writer = IndexWriter(searches.NAMES, list(searches.flat_hosts(hosts)))
    load = time.process_time() - begun
    few, _ = searches.measure(writer.index, searches.FLAT + "&limit=10", 15)
    many, _ = searches.measure(writer.index, searches.FLAT + "&limit=1000", 15)
    changes = []
    for tree in searches.flat_hosts(15):
        begun = time.process_time()
        writer.apply({tree.root_id: tree})
        changes.append(time.process_time() - begun)
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
