"""File descriptors and memory that run out, by limits of running processes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from tests.integration.nemesis.stage import Fault, Stage

_MORE_MEMORY = 1 << 20


@contextlib.contextmanager
def limited(processes: Sequence[psutil.Process], resource: int, least: int) -> Iterator[None]:
    """Give each process no more than it has, and a little; in the end what it had before."""
    before = {}
    for process in processes:
        has = amount(process, resource)
        with contextlib.suppress(psutil.NoSuchProcess):
            if has is not None:
                before[process] = process.rlimit(resource)
                process.rlimit(resource, (has + least, before[process][1]))
    try:
        yield
    finally:
        for process, limits in before.items():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.rlimit(resource, limits)


def amount(process: psutil.Process, resource: int) -> int | None:
    """Return how much a process has of what is limited; None for one that has ended."""
    if resource == psutil.RLIMIT_AS:
        with contextlib.suppress(psutil.NoSuchProcess):
            return process.memory_info().vms or None
        return None
    try:
        numbers = [int(path.name) for path in Path(f"/proc/{process.pid}/fd").iterdir()]
    except OSError:
        return None
    return max(numbers) + 1 if numbers else None


def no_descriptors(stage: Stage) -> str:
    seconds, more = stage.pause(), stage.dice.randint(0, 3)
    with limited(stage.service.workers(), psutil.RLIMIT_NOFILE, more):
        time.sleep(seconds)
    return f"workers without free descriptors but {more} for {seconds:.1f} s"


def no_memory(stage: Stage) -> str:
    seconds, more = stage.pause(), stage.dice.choice((0, 1, 8, 64))
    with limited(stage.service.workers(), psutil.RLIMIT_AS, more * _MORE_MEMORY):
        time.sleep(seconds)
    return f"workers without more memory than {more} MiB for {seconds:.1f} s"


LIMITS: tuple[Fault, ...] = (Fault(no_descriptors), Fault(no_memory))
