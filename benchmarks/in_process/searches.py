"""A search among flat hosts, in memory: without HTTP and database."""

from __future__ import annotations

import gc
import statistics
import time
import uuid
from collections.abc import Iterator
from urllib.parse import parse_qsl

import os_resource_classes
import os_traits

from placement_server.candidates.index.index import Index
from placement_server.candidates.index.summaries import SummaryCache
from placement_server.candidates.query import query as queries
from placement_server.candidates.response import Renderer
from placement_server.candidates.search.search import Search, SearchLimits
from placement_server.store.changes.snapshot import InventoryRow, NameRows, ProviderRow, TreeRows

VERSION = (1, 39)
ZONE = "aaaaaaaa-0000-0000-0000-000000000001"
CLASS_IDS = {name: number for number, name in enumerate(os_resource_classes.STANDARDS)}
TRAIT_IDS = {name: number for number, name in enumerate(sorted(os_traits.get_traits()), 1)}
NAMES = NameRows(CLASS_IDS, TRAIT_IDS)
HOST_TRAITS = tuple(sorted(TRAIT_IDS[name] for name in sorted(os_traits.get_traits("HW_CPU_"))[:8]))
REQUIRED = "HW_CPU_X86_AVX2"


def inventory(name: str, total: int, used: int = 0, ratio: float = 1.0) -> InventoryRow:
    """One inventory of a benchmark host."""
    capacity = int(total * ratio)
    return InventoryRow(
        CLASS_IDS[name], total, 0, 1, total, 1, ratio, capacity, min(used, capacity)
    )


def flat_hosts(count: int) -> Iterator[TreeRows]:
    """Hosts of one provider; each has the required trait, half are in the zone's aggregate."""
    traits = tuple(sorted({*HOST_TRAITS, TRAIT_IDS[REQUIRED]}))
    for number in range(count):
        stock = [
            inventory("VCPU", 64, number % 32, 16.0),
            inventory("MEMORY_MB", 262_144, 1024 * (number % 32), 1.5),
            inventory("DISK_GB", 2000, 20 * (number % 32)),
        ]
        own = number + 1
        host = ProviderRow(
            id=own,
            uuid=str(uuid.UUID(int=own << 80 | 0x4000_8000_0000_0000_0000)),
            parent_id=None,
            root_id=own,
            inventories=tuple(sorted(stock, key=lambda row: row.resource_class_id)),
            trait_ids=traits,
            aggregates=(ZONE,),
        )
        yield TreeRows(own, (host,))


FLAT = f"resources=VCPU:1,DISK_GB:10,MEMORY_MB:512&member_of={ZONE}&required={REQUIRED}"


def answer(index: Index, text: str, summaries: SummaryCache) -> bytes:
    """Answer a query string as the server does once the index is up to date."""
    query = queries.parse(parse_qsl(text), VERSION)
    search = Search(query, index, SearchLimits(query.limit, seconds=60.0))
    renderer = Renderer(query, search.plan, index, VERSION, summaries)
    return b"".join(renderer.body(search.candidates()))


def measure(index: Index, text: str, runs: int) -> tuple[float, bytes]:
    """Return the median in milliseconds, and the body."""
    summaries = SummaryCache()
    body = answer(index, text, summaries)
    times = []
    gc.collect()
    for _run in range(runs):
        start = time.process_time()
        answer(index, text, summaries)
        times.append(time.process_time() - start)
    return 1000 * statistics.median(times), body
