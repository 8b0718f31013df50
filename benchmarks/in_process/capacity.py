"""Counts of further claims on whole fleets, in process and without a database.

Processor time of one thread, the median of several counts.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl

from rich.console import Console
from rich.table import Table

from benchmarks.in_process.searches import FLAT, NESTED, VERSION, build, gpus
from placement_server.candidates.capacity.capacity import capacity
from placement_server.candidates.query import query as queries
from placement_server.candidates.search.search import Search

_TIMES: Final = 15
_ISOLATED: Final = (
    "resources_C=VCPU:2,MEMORY_MB:2048&resources_D=VCPU:4,MEMORY_MB:2048&resources_G=VGPU:1"
    "&same_subtree=_C,_G&group_policy=isolate"
)


@dataclass(frozen=True)
class _Row:
    """A fleet of so many hosts, a query, and the most milliseconds that it may take."""

    kind: str
    hosts: int
    query: str
    bound: float


_ROWS: Final = (
    _Row("flat", 10_000, FLAT, 100),
    _Row("nested", 1_000, f"{NESTED}&resources=DISK_GB:10", 400),
    _Row("nested", 1_000, _ISOLATED, 400),
    _Row("gpu", 100, gpus(8), 50),
)


def run(console: Console, quick: bool) -> bool:
    """Measure; return whether every count takes no more than it may."""
    table = Table(title="How many further claims: CPU milliseconds of a count")
    for heading in ("fleet", "query", "at least", "at most", "ms", "bound", ""):
        table.add_column(heading)
    holds = True
    for row in _ROWS:
        hosts = row.hosts // 10 if quick else row.hosts
        world = f"{row.kind} {hosts}" + (" 8" if row.kind == "gpu" else "")
        index = build(world).index
        query = queries.parse(parse_qsl(row.query), VERSION, extensions=True)
        times = []
        for _ in range(_TIMES):
            began = time.thread_time()
            count = capacity(Search(query, index))
            times.append(1000 * (time.thread_time() - began))
        median = statistics.median(times)
        holds &= median <= row.bound
        verdict = "holds" if median <= row.bound else "FAILS"
        count_texts = (f"{count.at_least:,}", f"{count.at_most:,}")
        table.add_row(
            world, row.query[:60], *count_texts, f"{median:.1f}", f"{row.bound:g}", verdict
        )
    console.print(table)
    return holds
