"""Processes that stand still for a while, as on a machine that swaps or is suspended."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import ClassVar

import psutil

from tests.integration.nemesis.stage import Fault, Stage


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


class StopWorker(Fault):
    def strike(self, stage: Stage) -> str:
        seconds = stage.pause()
        with stopped([stage.dice.choice(stage.service.workers())]):
            time.sleep(seconds)
        return f"a worker stopped for {seconds:.1f} s"


class StopServer(Fault):
    def strike(self, stage: Stage) -> str:
        seconds = stage.pause()
        with stopped(stage.service.family()):
            time.sleep(seconds)
        return f"the server stopped for {seconds:.1f} s"


class StopDatabase(Fault):
    databases: ClassVar[frozenset[str] | None] = frozenset({"postgresql", "mariadb", "standby"})

    def strike(self, stage: Stage) -> str:
        seconds = stage.pause()
        with stopped(stage.database.family()):
            time.sleep(seconds)
        return f"the database stopped for {seconds:.1f} s"


STOPS: tuple[Fault, ...] = (StopWorker(), StopServer(), StopDatabase())
