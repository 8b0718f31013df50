"""File descriptors and memory that run out, by limits of running processes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence

import psutil

from tests.integration.nemesis.stage import Fault, Stage

_MORE_MEMORY = 1 << 20


@contextlib.contextmanager
def limited(processes: Sequence[psutil.Process], resource: int, least: int) -> Iterator[None]:
    """Give each process no more than it has, and a little; in the end what it had before."""
    before = {}
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            has = (
                process.memory_info().vms
                if resource == psutil.RLIMIT_AS
                else max(descriptor(process)) + 1
            )
            before[process] = process.rlimit(resource)
            process.rlimit(resource, (has + least, before[process][1]))
    try:
        yield
    finally:
        for process, limits in before.items():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.rlimit(resource, limits)


def descriptor(process: psutil.Process) -> list[int]:
    """Return the numbers of the descriptors of a process."""
    from os import listdir

    return [int(name) for name in listdir(f"/proc/{process.pid}/fd")]


class NoDescriptors(Fault):
    def strike(self, stage: Stage) -> str:
        seconds, more = stage.pause(), stage.dice.randint(0, 3)
        with limited(stage.service.workers(), psutil.RLIMIT_NOFILE, more):
            time.sleep(seconds)
        return f"workers without free descriptors but {more} for {seconds:.1f} s"


class NoMemory(Fault):
    def strike(self, stage: Stage) -> str:
        seconds, more = stage.pause(), stage.dice.choice((0, 1, 8, 64))
        with limited(stage.service.workers(), psutil.RLIMIT_AS, more * _MORE_MEMORY):
            time.sleep(seconds)
        return f"workers without more memory than {more} MiB for {seconds:.1f} s"


LIMITS: tuple[Fault, ...] = (NoDescriptors(), NoMemory())
