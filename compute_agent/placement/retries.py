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

import tenacity

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
        retrying = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(UNAVAILABLE_TRIES),
            wait=self._unavailable_wait,
            retry=tenacity.retry_if_exception(_worth_waiting_for),
            sleep=self._sleep,
            reraise=True,
        )
        return retrying(attempt)

    def while_conflicting(self, attempt: Callable[[], T]) -> T:
        """Repeat ``attempt`` while another writer is first; the last conflict is raised.

        ``attempt`` must read again what it builds upon.
        """
        retrying = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(CONFLICT_TRIES),
            wait=self._conflict_wait,
            retry=tenacity.retry_if_exception_type(errors.ResourceProviderUpdateConflict),
            sleep=self._sleep_if_any,
            reraise=True,
        )
        return retrying(attempt)

    def with_jitter(self, seconds: float, share: float) -> float:
        """``seconds`` more or less by up to ``share`` of them."""
        return seconds * self.random.uniform(1 - share, 1 + share)

    def _unavailable_wait(self, state: tenacity.RetryCallState) -> float:
        planned_wait = self.with_jitter(0.5 * 2 ** (state.attempt_number - 1), 0.25)
        requested_wait = _retry_after(state.outcome.exception() if state.outcome else None)
        return max(planned_wait, requested_wait or 0.0)

    def _conflict_wait(self, state: tenacity.RetryCallState) -> float:
        # The first repetition is at once: nearly always one other writer, who is done by now.
        return self.random.uniform(0, 2 * (state.attempt_number - 1))

    def _sleep_if_any(self, seconds: float) -> None:
        if seconds > 0:
            self._sleep(seconds)

    def _sleep(self, seconds: float) -> None:
        with _aside.get()():
            self.clock.sleep(seconds)


def _retry_after(error: BaseException | None) -> float | None:
    return error.retry_after if isinstance(error, errors.PlacementError) else None


def _worth_waiting_for(error: BaseException) -> bool:
    if not isinstance(error, errors.PlacementUnavailable):
        return False
    if isinstance(error, errors.PlacementAnswerRefused):
        return False  # the next would cost as much, in time or memory
    return (error.retry_after or 0.0) <= LONGEST_WAIT
