"""The stage of a run: what faults have their hands on, and what a fault is."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.integration.bank.private_database import PrivateDatabase
from tests.integration.bank.proxy import Proxy
from tests.integration.bank.service import Service
from tests.integration.nemesis.small_disk import SmallDisk

if TYPE_CHECKING:
    from tests.fixtures.clocks import Clock
    from tests.integration.nemesis.answers import AnswerProxy


@dataclass
class Stage:
    """One run.

    :ivar await_writes: waits for so many more acknowledged writes.
    :ivar longest: seconds for which something stands still at most.
    :ivar disk: that of the database's files; None where it is as large as it is.
    :ivar temporary: that of the server's temporary files, likewise.
    :ivar clock: the server's; None where it cannot be set.
    """

    dice: random.Random
    service: Service
    database: PrivateDatabase
    to_service: Proxy
    answers: AnswerProxy | None
    to_database: Proxy | None
    await_writes: Callable[[int], None]
    longest: float = 3.0
    disk: SmallDisk | None = None
    temporary: SmallDisk | None = None
    clock: Clock | None = None

    def pause(self) -> float:
        """Draw for how long something stands still."""
        return self.dice.uniform(self.longest / 4, self.longest)


@dataclass(frozen=True)
class Fault:
    """One kind of fault.

    :ivar strike: does it, and returns what was done; all works again then.
    :ivar possible: whether a run can have it.
    """

    strike: Callable[[Stage], str]
    possible: Callable[[Stage], bool] = lambda _: True


def on(*databases: str) -> Callable[[Stage], bool]:
    """Return whether a run has one of these kinds of databases."""
    return lambda stage: stage.database.kind in databases


def schedule(stage: Stage, faults: Sequence[Fault], pace: int) -> Iterator[tuple[int, Fault]]:
    """Iterate over every possible fault once a round, without end, in a drawn order.

    With each comes the number of acknowledged writes after which it strikes.
    """
    possible = [fault for fault in faults if fault.possible(stage)]
    while True:
        stage.dice.shuffle(possible)
        for fault in possible:
            yield stage.dice.randint(pace // 2, pace), fault


def number_of(stage: Stage, faults: Sequence[Fault], rounds: int) -> int:
    """Return how many faults there are in so many rounds."""
    return rounds * sum(fault.possible(stage) for fault in faults)
