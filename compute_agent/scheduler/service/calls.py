"""Calls that are being answered, and whether work on them goes on."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from compute_agent.placement.transports.transport import Request, Response, Transport
from compute_agent.scheduler.outcomes.observer import Observer


class Calls(Observer):
    """Calls in progress.  Safe in several threads.

    :param clock: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._running_calls: dict[int, tuple[str, float]] = {}
        self._has_moved = False

    @contextmanager
    def answering(self, method: str) -> Iterator[None]:
        """See `Observer`."""
        number = next(self._numbers)
        with self._lock:
            self._running_calls[number] = (method, self._clock())
        try:
            yield
        finally:
            with self._lock:
                del self._running_calls[number]
                self._has_moved = True

    def record_progress(self) -> None:
        """Note that something a call waited for has happened."""
        with self._lock:
            self._has_moved = True

    def on_upkeep(self, *, placement_up: bool, bus_up: bool, oldest_announcement: float) -> None:
        """Hear, from time to time, of what calls depend on; ages in seconds."""

    def move_on(self) -> bool:
        """Return whether calls have moved on since this was last asked, or none is in progress."""
        with self._lock:
            has_moved, self._has_moved = self._has_moved, False
            return has_moved or not self._running_calls

    def in_progress(self) -> list[dict[str, Any]]:
        """Return the calls in progress, the oldest first, with the seconds since they came."""
        now = self._clock()
        with self._lock:
            return [
                {"method": method, "seconds": round(now - since, 3)}
                for method, since in self._running_calls.values()
            ]


class WatchedTransport:
    """A way to placement that notes every answer as progress.

    :param on_answer: called after each answer, in the thread that asked.
    """

    def __init__(self, inner: Transport, on_answer: Callable[[], None]) -> None:
        self._inner = inner
        self._on_answer = on_answer

    def send(self, request: Request) -> Response:
        """See `Transport`."""
        response = self._inner.send(request)
        self._on_answer()
        return response
