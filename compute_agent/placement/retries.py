"""Repetition of requests, and the waits before, with clock and chance handed in.

Tries, with the waits before each further one:

    placement cannot answer (GET, PUT, DELETE)  3   0.5 s, 1 s, each +-25 %; Retry-After if longer
    generation conflict, lost race              4   uniform in [0, 2 x try]
"""

from __future__ import annotations

import random as randomlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from compute_agent import errors

UNAVAILABLE_TRIES: Final = 3
CONFLICT_TRIES: Final = 4
LONGEST_WAIT: Final = 5.0
"""A longer Retry-After is left to the planner of the pass: no request sleeps for minutes."""

T = TypeVar("T")
Aside = Callable[[], AbstractContextManager[None]]

_aside: ContextVar[Aside] = ContextVar("aside", default=nullcontext)


@contextmanager
def stepping_aside(aside: Aside) -> Iterator[None]:
    """Enter `aside` around every wait inside, in this thread and in those that work for it.

    :param aside: lets others have meanwhile what the caller holds; `nullcontext` keeps it.
    """
    token = _aside.set(aside)
    try:
        yield
    finally:
        _aside.reset(token)


class Clock(Protocol):
    """What is needed of time."""

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's own clock."""

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@dataclass(frozen=True, slots=True)
class Retries:
    """The policies, over one clock and one source of chance."""

    clock: Clock = field(default_factory=SystemClock)
    random: randomlib.Random = field(default_factory=randomlib.Random)

    def while_unavailable(self, attempt: Callable[[], T]) -> T:
        """Repeat ``attempt`` while placement cannot answer; the last failure is raised."""
        tries = 0
        while True:
            try:
                return attempt()
            except errors.PlacementUnavailable as outage:
                tries += 1
                self.wait_out(outage, tries)

    def wait_out(self, outage: errors.PlacementUnavailable, tries: int) -> None:
        """Wait before the next try; raise the outage where none is worth it any more.

        :param tries: so many have failed.
        """
        # an answer that was refused would cost as much the next time, in time or memory
        is_hopeless = isinstance(outage, errors.PlacementAnswerRefused)
        requested_wait = outage.retry_after or 0.0
        if tries >= UNAVAILABLE_TRIES or is_hopeless or requested_wait > LONGEST_WAIT:
            raise outage
        self._sleep(max(self.with_jitter(0.5 * 2 ** (tries - 1), 0.25), requested_wait))

    def while_conflicting(self, attempt: Callable[[], T]) -> T:
        """Repeat ``attempt`` while another writer is first; the last conflict is raised.

        ``attempt`` must read again what it builds upon.
        """
        for tries in range(1, CONFLICT_TRIES):
            try:
                return attempt()
            except errors.ResourceProviderUpdateConflict:
                # The first repetition is at once: nearly always one other writer, who is done.
                if (seconds := self.random.uniform(0, 2 * (tries - 1))) > 0:
                    self._sleep(seconds)
        return attempt()

    def with_jitter(self, seconds: float, share: float) -> float:
        """``seconds`` more or less by up to ``share`` of them."""
        return seconds * self.random.uniform(1 - share, 1 + share)

    def _sleep(self, seconds: float) -> None:
        with _aside.get()():
            self.clock.sleep(seconds)
