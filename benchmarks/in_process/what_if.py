"""Questions about a fleet with one host changed, beside the same questions about the fleet.

In process and without a database: what a change costs is the copy of the index, the new host and
what the search cannot share. Processor time of one thread, the median of many.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Final
from urllib.parse import parse_qsl

from rich.console import Console
from rich.table import Table

from benchmarks.parts.worlds import AGGREGATE, TRAIT, uuid_of
from benchmarks.reads.rows import FLAT_QUERY, NESTED_QUERY
from placement_server.candidates.index.feed import Feed
from placement_server.candidates.index.index import Index, IndexWriter
from placement_server.candidates.query import query as queries
from placement_server.candidates.service import CandidateService
from placement_server.candidates.what_if.changes import Change, SupposedInventory
from placement_server.store.changes.snapshot import InventoryRow, NameRows, ProviderRow, TreeRows
from placement_server.store.records import InventoryRecord
from placement_server.store.store import Store

#: The most that one changed host may add, in milliseconds.
BOUND: Final = 5.0
_VERSION: Final = (1, 39)
_CLASSES: Final = ("VCPU", "MEMORY_MB", "DISK_GB", "VGPU", "SRIOV_NET_VF")
_NAMES: Final = NameRows(
    {name: number for number, name in enumerate(_CLASSES)}, {TRAIT: 1, "HW_NUMA_ROOT": 2}
)
_FLAT: Final = [(-1, {"VCPU": 64, "MEMORY_MB": 262144, "DISK_GB": 1000})]
_CELL: Final = [
    {"VCPU": 32, "MEMORY_MB": 131072},
    {"VGPU": 4},
    {"VGPU": 4},
    {},
    {"SRIOV_NET_VF": 16},
    {"SRIOV_NET_VF": 16},
]
_PARENTS: Final = [0, 1, 1, 1, 4, 4]
_NESTED: Final = [
    (-1, {"DISK_GB": 1000}),
    *zip(_PARENTS, _CELL, strict=True),
    *zip([0, *(parent + 6 for parent in _PARENTS[1:])], _CELL, strict=True),
]


class _Fleet(Feed):
    """A feed of a fleet that does not change."""

    def __init__(self, store: Store, index: Index) -> None:
        super().__init__(store)
        self._index = index

    def index(self) -> Index:
        return self._index


def run(console: Console, quick: bool) -> bool:
    """Measure; return whether one changed host adds no more than it may."""
    table = Table(title="What if one host is changed: CPU milliseconds of a question")
    for heading in ("fleet", "limit", "as it is", "with a change", "more", "at most", ""):
        table.add_column(heading, justify="right" if heading in ("as it is", "more") else "left")
    holds = True
    store = Store.open("sqlite://")
    scale = 10 if quick else 1
    for name, hosts, host, path in (
        ("flat hosts", 10_000 // scale, _FLAT, FLAT_QUERY),
        ("nested hosts of 13 providers", 1_000 // scale, _NESTED, NESTED_QUERY),
    ):
        index = IndexWriter(_NAMES, [_tree(number, host) for number in range(hosts)]).index
        service = CandidateService(store, feed=_Fleet(store, index))
        provider = uuid_of(f"{hosts // 2}-0")
        change = SupposedInventory(provider, "DISK_GB", InventoryRecord(total=2000))
        for limit in (10, 1000):
            question = f"{path.partition('?')[2]}&limit={limit}"
            query = queries.parse(parse_qsl(question), _VERSION, extensions=True)
            plain = _median(partial(_ask, service, query))
            supposed_ms = _median(partial(_suppose, service, change, query))
            more = supposed_ms - plain
            holds &= more <= BOUND
            verdict = "holds" if more <= BOUND else "FAILS"
            numbers = (f"{plain:.2f}", f"{supposed_ms:.2f}", f"{more:.2f}", f"{BOUND:g}")
            table.add_row(f"{hosts} {name}", str(limit), *numbers, verdict)
    store.close()
    console.print(table)
    return holds


def _ask(service: CandidateService, query: queries.CandidateQuery) -> None:
    service.answer(query, _VERSION).account.close()


def _suppose(service: CandidateService, change: Change, query: queries.CandidateQuery) -> None:
    fleet = service.suppose([change], _VERSION)
    fleet.candidates(query, _VERSION)
    fleet.leave()
    fleet.account.close()


def _median(work: Callable[[], None], times: int = 60) -> float:
    """Return the median of the processor time, in milliseconds."""
    measurements = []
    for _ in range(times):
        began = time.thread_time()
        work()
        measurements.append(1000 * (time.thread_time() - began))
    return statistics.median(measurements[times // 4 :])


def _tree(number: int, host: list[tuple[int, dict[str, int]]]) -> TreeRows:
    first = number * len(host) + 1
    providers = tuple(
        ProviderRow(
            id=first + position,
            uuid=uuid_of(f"{number}-{position}"),
            parent_id=None if parent < 0 else first + parent,
            root_id=first,
            inventories=tuple(
                InventoryRow(_CLASSES.index(name), total, 0, 1, total, 1, 1.0, total, 0)
                for name, total in sorted(stock.items(), key=lambda pair: _CLASSES.index(pair[0]))
            ),
            trait_ids=(1,),
            aggregates=(AGGREGATE,),
        )
        for position, (parent, stock) in enumerate(host)
    )
    return TreeRows(first, providers)
