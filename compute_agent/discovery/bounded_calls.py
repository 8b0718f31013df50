"""Calls that may hang: each runs in a thread that is given up after a deadline.

A file of a dead device or of a dead server, a driver of the vendor, a daemon that stopped: none of
them can be interrupted from outside. The thread is left behind and the caller gets an error.

    running ──► returned
       └──► given up ──► returned late (its result is dropped)

While a call is given up and has not returned, no other call to the same source is begun, so that
threads do not pile up; the first call after it returned is made again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

from msgspec import Struct, field

from compute_agent.discovery.errors import CallHangs

LOG = logging.getLogger(__name__)

_Result = TypeVar("_Result")

TIMEOUT: Final = 60.0
"""Seconds that a call, or one step of it, may take."""
NOTICEABLE: Final = 5.0
"""Seconds after which a call that runs is shown as one that hangs."""
CLOSING: Final = 5.0
"""Seconds in which a source is closed, or left to the end of the process."""
IDLE: Final = 5.0
"""Seconds after which a thread without work ends: longer than a pass pauses between calls."""


class HungCall(Struct, frozen=True):
    """A call that has not returned; `since` in seconds since the epoch."""

    source: str
    call: str
    since: float

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.since, UTC).isoformat(timespec="seconds")
        return f"{self.source}: {self.call} has not returned since {since}"


class _Call:
    """One call, in the hands of the thread that waits for it and of the one that runs it."""

    def __init__(self, owner: BoundedCalls, name: str, function: Callable[[], Any]) -> None:
        self.owner = owner
        self.function: Callable[[], Any] | None = function
        self.result: Any = None
        self.error: BaseException | None = None
        self.given_up = False
        self.wake = threading.Lock()
        """Free: there is something to look at for the caller."""
        self.wake.acquire()
        self.step(name)

    def step(self, name: str) -> None:
        self.name = name
        self.began = time.monotonic()
        self.wall = time.time()

    def as_of_now(self) -> HungCall:
        return HungCall(self.owner.source, self.name, self.wall)


class _Thread(threading.local):
    """What the thread runs."""

    call: _Call | None = None


_this_thread = _Thread()


def step(name: str) -> None:
    """Name what the call of this thread does from now on, which gets a deadline of its own.

    Without effect in a thread that runs no bounded call.
    """
    call = _this_thread.call
    if call is not None:
        call.step(name)


class BoundedCalls(Struct, eq=False):
    """Calls to one source. Safe for threads.

    :ivar source: in words, for messages: "libvirt at qemu:///system", "this machine".
    :ivar timeout: seconds that a call, or one step of it, may take.
    :ivar one_at_a_time: the source is not made for several threads; a call waits for others.
    """

    source: str
    timeout: float = TIMEOUT
    one_at_a_time: bool = False
    on_return: Callable[[str], None] = lambda _what: None
    """Called, in any thread, when a call that was given up has returned: ask again."""
    _condition: threading.Condition = field(default_factory=threading.Condition)
    _running_calls: dict[_Call, None] = {}
    _idle: list[SimpleQueue[_Call]] = []

    def run(
        self, name: str, function: Callable[[], _Result], *, timeout: float | None = None
    ) -> _Result:
        """Return what `function` returns, or raise what it raises.

        A call inside another one to the same source is a step of that.

        :param timeout: where it differs from that of all calls.
        :raises CallHangs: it did not return in time, or an earlier one has not returned.
        """
        outer = _this_thread.call
        if outer is not None and outer.owner is self:
            outer.step(name)
            return function()
        call = _Call(self, name, function)
        self._begin(call, timeout)
        while not self._is_over(call):
            remaining_seconds = call.began + self._limit(timeout) - time.monotonic()
            if remaining_seconds <= 0.0:
                self._give_up(call)
            else:
                call.wake.acquire(timeout=remaining_seconds)
        if call.error is not None:
            try:
                raise call.error
            finally:
                # the traceback refers to this frame, and this frame to the error
                del call
        result: _Result = call.result
        return result

    def hanging(self) -> tuple[HungCall, ...]:
        """Return the calls that have not returned for a noticeable time, the oldest first."""
        now = time.monotonic()
        with self._condition:
            return tuple(
                call.as_of_now()
                for call in self._running_calls
                if call.given_up or now - call.began >= NOTICEABLE
            )

    def stop_waiting(self) -> None:
        """Give calls up that hang noticeably, from now on: the process is to end."""
        with self._condition:
            self.timeout = min(self.timeout, NOTICEABLE)
            for call in self._running_calls:
                _wake(call)
            self._condition.notify_all()

    def _limit(self, timeout: float | None) -> float:
        return self.timeout if timeout is None else min(timeout, self.timeout)

    def _begin(self, call: _Call, timeout: float | None) -> None:
        """Hand the call to a thread, when it is its turn."""
        with self._condition:
            while True:
                hung_call = next((other for other in self._running_calls if other.given_up), None)
                if hung_call is not None:
                    raise CallHangs(str(hung_call.as_of_now()))
                if not (self.one_at_a_time and self._running_calls):
                    break
                remaining_seconds = call.began + self._limit(timeout) - time.monotonic()
                if remaining_seconds <= 0.0:
                    raise CallHangs(str(next(iter(self._running_calls)).as_of_now()))
                self._condition.wait(remaining_seconds)
            inbox = self._idle.pop() if self._idle else self._start_thread()
            self._running_calls[call] = None
            call.step(call.name)
        inbox.put(call)

    def _start_thread(self) -> SimpleQueue[_Call]:
        """Start another thread, and return where it gets its calls from."""
        inbox: SimpleQueue[_Call] = SimpleQueue()
        threading.Thread(
            target=self._work, args=(inbox,), name=f"calls to {self.source}", daemon=True
        ).start()
        return inbox

    def _is_over(self, call: _Call) -> bool:
        """Whether the call has returned.

        :raises CallHangs: it was given up.
        """
        with self._condition:
            if call.given_up:
                raise CallHangs(str(call.as_of_now()))
            return call not in self._running_calls

    def _give_up(self, call: _Call) -> None:
        with self._condition:
            if call in self._running_calls and not call.given_up:
                call.given_up = True
                LOG.error("%s; it is not waited for any longer.", call.as_of_now())
                self._condition.notify_all()

    def _work(self, inbox: SimpleQueue[_Call]) -> None:
        """Run calls in this thread, until there are none for some time."""
        while True:
            try:
                call = inbox.get(timeout=IDLE)
            except Empty:
                with self._condition:
                    if inbox in self._idle:
                        self._idle.remove(inbox)
                        return
                continue
            _this_thread.call = call
            try:
                assert call.function is not None
                call.result = call.function()
            except BaseException as error:  # noqa: BLE001 - it is the caller's
                call.error = error
            _this_thread.call = None
            call.function = None
            self._end(call, inbox)
            if call.given_up:
                seconds = time.monotonic() - call.began
                LOG.info("%s: %s returned after %.0f s.", self.source, call.name, seconds)
                try:
                    self.on_return(f"{self.source}: {call.name} returned")
                except Exception:
                    what_follows = "%s: the work that follows call %s failed."
                    LOG.exception(what_follows, self.source, call.name)
            del call

    def _end(self, call: _Call, inbox: SimpleQueue[_Call]) -> None:
        with self._condition:
            del self._running_calls[call]
            self._idle.append(inbox)
            if call.given_up:
                # nobody takes them, and they may hold what only this thread should let go
                call.result = call.error = None
            if self.one_at_a_time or call.given_up:
                self._condition.notify_all()
            _wake(call)


def _wake(call: _Call) -> None:
    """Make the caller look; the mutex of the source is held."""
    if call.wake.locked():
        call.wake.release()
