"""Faults of the machine: standstills, descriptors and memory that run out, full disks, clocks."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import psutil

from tests.integration.bank.connection import Connection, UnansweredRequest
from tests.integration.nemesis.stage import Fault, Stage, on


@contextlib.contextmanager
def stopped(processes: Sequence[psutil.Process]) -> Iterator[None]:
    """SIGSTOP; SIGCONT in the end, for those that are still there."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.suspend()
    try:
        yield
    finally:
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()


def _stop(
    what: str, processes: Callable[[Stage], Sequence[psutil.Process]]
) -> Callable[[Stage], str]:
    def strike(stage: Stage) -> str:
        seconds = stage.pause()
        with stopped(processes(stage)):
            time.sleep(seconds)
        return f"{what} stopped for {seconds:.1f} s"

    return strike


STOPS: tuple[Fault, ...] = (
    Fault(_stop("a worker", lambda stage: [stage.dice.choice(stage.service.workers())])),
    Fault(_stop("the server", lambda stage: stage.service.family())),
    Fault(
        _stop("the database", lambda stage: stage.database.family()),
        on("postgresql", "mariadb", "standby"),
    ),
)


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


_LARGE = 3_000_000


def fill_database(stage: Stage) -> str:
    """Writes are refused, or the database ends; when there is room again it goes on."""
    assert stage.disk is not None
    seconds = stage.pause()
    with stage.disk.full():
        time.sleep(seconds)
    ended = stage.database.ended()
    if ended:
        stage.database.start()
    return f"disk of the database full for {seconds:.1f} s{', it ended' * ended}"


def fill_temporary(stage: Stage) -> str:
    """Large bodies need no place on it; requests are answered, by a new worker too."""
    assert stage.temporary is not None
    with stage.temporary.full():
        answer = large_request(stage.to_service.port)
        stage.service.kill_worker(stage.dice)
        stage.await_writes(5)
    # the server has read it, and says what is wrong with it
    assert answer.startswith("400"), answer
    return f"disk of temporary files full: {answer[:60]}"


def large_request(port: int) -> str:
    """Send a claim of three megabytes that names nothing there is; return what came of it."""
    body = {"allocations": {}, "padding": "x" * _LARGE}
    try:
        answer = Connection(port).send("POST", "/allocations", body)
    except UnansweredRequest as error:
        return str(error)
    return f"{answer.status} {json.dumps(answer.error)}"


DISKS: tuple[Fault, ...] = (
    Fault(fill_database, lambda stage: stage.disk is not None),
    Fault(fill_temporary, lambda stage: stage.temporary is not None),
)


_STEPS: Final = (0, 3600, -3600)


def step_clock(stage: Stage) -> str:
    """The server's clock is set, and set again at the next such fault."""
    assert stage.clock is not None
    seconds = stage.dice.choice([step for step in _STEPS if step != stage.clock.ahead])
    stage.clock.set(seconds)
    stage.await_writes(10)
    return f"the server's clock is {seconds} s ahead"


CLOCKS: tuple[Fault, ...] = 2 * (Fault(step_clock, lambda stage: stage.clock is not None),)
