"""Costs of a worker before its first request: import, CPU and memory; then memory while idle."""

import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.floors.table import Row
from benchmarks.parts.servers import (
    Server,
    family,
    keeping_bytecode,
    ours,
    postgresql,
    published,
    published_venv,
    write_config,
)

WORKERS = 2


@dataclass(frozen=True)
class Import:
    """What importing the WSGI application takes, without the interpreter's own start.

    :param resident_mib: the peak of the whole process.
    """

    cpu_s: float
    resident_mib: float


def import_cost(python: Path, module: str, config: Path, runs: int) -> Import:
    """Import a module in fresh interpreters; medians."""
    costs = [_run(python, f"import {module}", config) for _ in range(runs)]
    bare = [_run(python, "pass", config) for _ in range(runs)]
    cpu = statistics.median(cost[0] for cost in costs)
    return Import(
        cpu - statistics.median(cost[0] for cost in bare),
        statistics.median(cost[1] for cost in costs),
    )


def _run(python: Path, code: str, config: Path) -> tuple[float, float]:
    environment = {**keeping_bytecode(), "OS_PLACEMENT_CONFIG_DIR": str(config)}
    with open(os.devnull, "wb") as nowhere:
        actions = [(os.POSIX_SPAWN_DUP2, nowhere.fileno(), descriptor) for descriptor in (1, 2)]
        pid = os.posix_spawn(python, [str(python), "-c", code], environment, file_actions=actions)
        _, status, usage = os.wait4(pid, 0)
    if status:
        raise RuntimeError(f"{python} -c {code!r} ended with {os.waitstatus_to_exitcode(status)}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def idle_mib(server: Server) -> float:
    """The mean resident memory of the workers, which have answered one request at most."""
    workers = family(server.pid)[1:]
    return statistics.mean(worker.memory_info().rss / 2**20 for worker in workers)


def rows(quick: bool) -> Iterator[Row]:
    """Measure both servers."""
    runs = 2 if quick else 7
    with tempfile.TemporaryDirectory(prefix="benchmark-") as name:
        directory = Path(name)
        directory.chmod(0o755)
        with postgresql(directory / "postgresql") as cluster:
            connection = f"postgresql+psycopg2:{cluster}/published"
            config = directory / "published"
            with published(config, connection, WORKERS) as server:
                their_idle = idle_mib(server)
            theirs = import_cost(
                published_venv() / "bin" / "python", "placement.wsgi.api", config, runs
            )
            connection = f"postgresql+psycopg:{cluster}/ours"
            config = directory / "ours"
            with ours(config, connection, WORKERS) as server:
                our_idle = idle_mib(server)
            write_config(config, connection)
            mine = import_cost(Path(sys.executable), "placement_server.wsgi", config, runs)
    for title, unit, their_value, my_value in (
        ("import of the application", "CPU s", theirs.cpu_s, mine.cpu_s),
        ("memory after it", "MiB", theirs.resident_mib, mine.resident_mib),
        ("memory of an idle worker", "MiB", their_idle, our_idle),
    ):
        yield Row(f"start of a worker: {title}", unit, my_value, published=their_value)
