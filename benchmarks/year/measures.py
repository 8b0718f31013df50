"""Measures of a year: of processes, tables, latencies and files; and how much each may grow."""

from __future__ import annotations

import re
import resource
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
import requests
import sqlalchemy as sa

from benchmarks.parts.servers import Server, cpu_seconds, family
from benchmarks.year import tables
from benchmarks.year.series import Bound
from placement_server.store.changes.changes import KEPT_ROWS

MIB: Final = 2**20
_METRIC: Final = re.compile(r"^placement_index_slots ([0-9.]+)$", re.MULTILINE)

_DEAD_SLOTS: Final = 4096
"""The index is compacted where it has more of them than that, and than living ones."""

BOUNDS: Final = tuple(
    (re.compile(pattern), bound)
    for pattern, bound in (
        (r"^agent: MiB$", Bound(amount=4)),
        (r"^driver: MiB$", Bound(amount=16)),
        (r"^(server|scheduler): MiB$", Bound(amount=8)),
        # idle connections of agents come and go, each with a thread
        (r": (descriptors|threads)$", Bound(amount=64)),
        (r": median ms$", Bound(share=0.5)),
        (r"^server: CPU ms a request$", Bound(share=0.2)),
        (r"^slots of the index beyond ", Bound(amount=1000)),
        (r"^rows of changes$", Bound(amount=KEPT_ROWS)),
        # of some 2,500 in a year
        (r"^rows of (projects|users)$", Bound(amount=100)),
        (r"^rows of ", Bound(amount=20, share=0.05)),
        (r"^database, ", Bound(amount=8, share=0.2)),
        (r"^state of ", Bound(amount=1)),
    )
)


@dataclass(frozen=True)
class Processes:
    """Those of one season; the driver makes the requests of clients and simulated agents.

    :ivar database: the database's main process; None where it has none.
    """

    server: Server
    agent: int
    schedulers: Sequence[int]
    database: int | None

    def cpu(self) -> dict[str, float]:
        """CPU seconds so far, by part."""
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        parts = {
            "driver": time.process_time(),
            "server": self.server.cpu_seconds(),
            "agent": cpu_seconds(self.agent),
            "prune": usage.ru_utime + usage.ru_stime,
        }
        if self.schedulers:
            parts["scheduler"] = sum(map(cpu_seconds, self.schedulers))
        if self.database is not None:
            times = psutil.Process(self.database).cpu_times()
            # sessions that have ended, too
            ended_sessions = times.children_user + times.children_system
            parts["database"] = cpu_seconds(self.database) + ended_sessions
        return parts

    def values(self) -> dict[str, float]:
        """Memory, descriptors and threads."""
        members = {
            "server": psutil.Process(self.server.pid).children(),
            "agent": [psutil.Process(self.agent)],
            "driver": [psutil.Process()],
        }
        if self.schedulers:
            members["scheduler"] = [process for pid in self.schedulers for process in family(pid)]
        values = {}
        for name, processes in members.items():
            infos = [(p.memory_info().rss / MIB, p.num_fds(), p.num_threads()) for p in processes]
            sizes, files, threads = zip(*infos, strict=True)
            # which worker has which connection changes, but not how many there are
            values[f"{name}: MiB"] = max(sizes)
            values[f"{name}: descriptors"] = sum(files)
            values[f"{name}: threads"] = sum(threads)
        return values


def latencies(took: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Medians of the seconds that requests took, by kind."""
    return {
        f"{kind}: median ms": 1000 * statistics.median(seconds)
        for kind, seconds in took.items()
        if seconds
    }


def index(server: Server, providers: float) -> dict[str, float]:
    """The size of the index of candidates, beyond that at which it is compacted."""
    answer = requests.get(f"{server.url}/-/metrics", timeout=60).text
    (slots,) = _METRIC.findall(answer)
    most = providers + max(_DEAD_SLOTS, providers)
    return {"slots of the index beyond its bound": max(0.0, float(slots) - most)}


def database(engine: sa.Engine) -> dict[str, float]:
    """Rows, and the room that they take."""
    counts = {f"rows of {name}": float(count) for name, count in tables.rows(engine).items()}
    return counts | {f"database, {name}: MiB": size for name, size in tables.sizes(engine).items()}


def files(directories: Mapping[str, Path]) -> dict[str, float]:
    """The size of what is in directories, without logs."""
    return {
        f"state of {name}: MiB": sum(
            path.stat().st_size / MIB
            for path in directory.rglob("*")
            if path.is_file() and path.name != "log"
        )
        for name, directory in directories.items()
    }
