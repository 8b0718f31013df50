"""Explanations with the closest changes, beside searches of the same queries that find nothing.

Whole requests to the application in this process, on SQLite: what a client waits for, without
sockets. Processor time of one thread, the median of many.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from sqlalchemy import Connection, insert

from benchmarks.in_process.searches import (
    CLASS_IDS,
    FLAT,
    NESTED,
    TRAIT_IDS,
    flat_hosts,
    gpu_hosts,
    gpus,
    nested_hosts,
)
from compute_agent.placement.transports.in_process import InProcessTransport
from compute_agent.placement.transports.transport import Microversion, Request
from placement_server.app import build_app
from placement_server.conf import new_config
from placement_server.store import tables
from placement_server.store.changes.snapshot import ProviderRow, TreeRows
from placement_server.store.store import Store

#: An explanation may cost so many times what the search costs.
BOUND: Final = 20.0
_TIMES: Final = 40
_MISSING: Final = "HW_GPU_API_DXVA"


@dataclass(frozen=True)
class _Row:
    """A query that nothing answers, and why."""

    why: str
    query: str


_FLEETS: Final = {
    "flat": (
        _Row("no host has the room", FLAT.replace("DISK_GB:10", "DISK_GB:3000")),
        _Row(
            "no host has the room of two classes",
            FLAT.replace("DISK_GB:10", "DISK_GB:3000").replace("VCPU:1,", "VCPU:2000,"),
        ),
        _Row("no host has the trait", f"{FLAT},{_MISSING}"),
    ),
    "nested": (
        _Row("no GPU has the room", NESTED.replace("VGPU:1", "VGPU:5")),
        _Row("no GPU has the trait", f"{NESTED}&required_G={_MISSING}"),
        _Row("no cell has both", NESTED.replace("VCPU:2", "VCPU:33") + f"&required_G={_MISSING}"),
    ),
    "gpu": (
        _Row("nine GPUs of eight", gpus(9)),
        _Row("two of eight GPUs with a trait", f"{gpus(8)}&required_3={_MISSING}"
             f"&required_4={_MISSING}"),
    ),
}  # fmt: skip


def run(console: Console, quick: bool) -> bool:
    """Measure; return whether no explanation costs more than it may."""
    table = Table(title="Why not: CPU milliseconds of a request")
    for heading in ("fleet", "why", "search", "in 1.0", "in 1.1", "ratio", "at most", ""):
        table.add_column(heading, justify="left" if heading in ("fleet", "why", "") else "right")
    holds = True
    scale = 10 if quick else 1
    fleets = {
        "flat": (f"{10_000 // scale:,} flat hosts", flat_hosts(10_000 // scale)),
        "nested": (f"{1_000 // scale:,} nested hosts of 13", nested_hosts(1_000 // scale)),
        "gpu": (f"{100 // scale} hosts of 8 GPUs", gpu_hosts(100 // scale, 8)),
    }
    for kind, rows in _FLEETS.items():
        title, trees = fleets[kind]
        with _server(trees) as placement:
            for row in rows:
                query = row.query.replace("&limit=1000", "")
                search = _median(placement, f"/allocation_candidates?{query}&limit=1000", (1, 0))
                counted_ms = _median(placement, f"/candidate_explanation?{query}", (1, 0))
                closest = _median(placement, f"/candidate_explanation?{query}", (1, 1))
                ratio = closest / search
                holds &= ratio <= BOUND
                numbers = (f"{search:.2f}", f"{counted_ms:.2f}", f"{closest:.2f}", f"{ratio:.1f}")
                verdict = "holds" if ratio <= BOUND else "FAILS"
                table.add_row(title, row.why, *numbers, f"{BOUND:g}", verdict)
    console.print(table)
    return holds


def _median(placement: InProcessTransport, path: str, extensions: Microversion) -> float:
    """Return the median of the processor time of a request, in milliseconds."""
    request = Request("GET", path, (1, 39), None, extensions=extensions)
    measurements = []
    for _ in range(_TIMES):
        began = time.thread_time()
        answer = placement.send(request)
        measurements.append(1000 * (time.thread_time() - began))
        if answer.status != 200:
            raise RuntimeError(f"{path} was answered {answer.status}: {answer.text}")
    return statistics.median(measurements[_TIMES // 4 :])


@contextmanager
def _server(trees: Iterable[TreeRows]) -> Iterator[InProcessTransport]:
    """Serve trees from a database that is written row by row, without a request for each."""
    with tempfile.TemporaryDirectory() as directory:
        url = f"sqlite:///{Path(directory) / 'placement.db'}"
        conf = new_config(config_files=[])
        conf.set_override("connection", url, group="placement_database")
        conf.set_override("sync_on_startup", True, group="placement_database")
        store = Store.from_conf(conf)
        store.synchronise_standard_names()
        with store.engine.begin() as connection:
            _write(connection, [row for tree in trees for row in tree.providers])
        yield InProcessTransport(build_app(conf, store, auth_strategy="noauth2"))
        store.close()


def _write(connection: Connection, providers: list[ProviderRow]) -> None:
    class_ids = _ids(connection, tables.resource_classes, CLASS_IDS)
    trait_ids = _ids(connection, tables.traits, TRAIT_IDS)
    aggregates = {name for row in providers for name in row.aggregates}
    numbers = {name: number for number, name in enumerate(sorted(aggregates), 1)}
    rows: dict[Any, list[dict[str, Any]]] = {
        tables.resource_providers: [
            {
                "id": row.id,
                "uuid": row.uuid,
                "name": f"host-{row.root_id}" + (f"-{row.id}" if row.parent_id else ""),
                "generation": 0,
                "root_provider_id": row.root_id,
                "parent_provider_id": row.parent_id,
            }
            for row in providers
        ],
        tables.inventories: [
            {
                "resource_provider_id": row.id,
                "resource_class_id": class_ids[inventory.resource_class_id],
                **{
                    field: getattr(inventory, field)
                    for field in (
                        "total", "reserved", "min_unit", "max_unit", "step_size",
                        "allocation_ratio", "capacity", "used",
                    )
                },
            }
            for row in providers
            for inventory in row.inventories
        ],
        tables.resource_provider_traits: [
            {"resource_provider_id": row.id, "trait_id": trait_ids[number]}
            for row in providers
            for number in row.trait_ids
        ],
        tables.placement_aggregates: [
            {"id": number, "uuid": name} for name, number in numbers.items()
        ],
        tables.resource_provider_aggregates: [
            {"resource_provider_id": row.id, "aggregate_id": numbers[name]}
            for row in providers
            for name in row.aggregates
        ],
        # Who holds what is used matters by its number only: one consumer for each unit.
        tables.allocations: [
            {
                "resource_provider_id": row.id,
                "consumer_id": f"consumer-{row.id}-{number}",
                "resource_class_id": class_ids[inventory.resource_class_id],
                "used": 1,
            }
            for row in providers
            for inventory in row.inventories
            for number in range(min(inventory.used, 10))
        ],
    }  # fmt: skip
    for table, values in rows.items():
        if values:
            connection.execute(insert(table), values)


def _ids(connection: Connection, table: Any, by_name: dict[str, int]) -> dict[int, int]:
    """Return the ids of names in the database, by their numbers in the trees."""
    stored_ids = {row.name: row.id for row in connection.execute(table.select())}
    return {number: stored_ids[name] for name, number in by_name.items() if name in stored_ids}
