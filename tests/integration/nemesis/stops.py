"""Processes that stand still for a while, as on a machine that swaps or is suspended."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence

import psutil

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
