"""Limits of what the searches of one worker process may take: memory, processor time, and time.

Each search has an `Account` that its parts charge for what they keep, by estimate (see `sizes`).
The index is not counted, and neither is what a single step needs for a moment.

    |---- heavy searches: five eighths at most ----|--- light ones ---|-- summaries, kept --|

All threads of a process share one interpreter, so each of many long searches would make every
other request wait. A search is light when it begins and never waits; once it has used some
processor time it is heavy, and goes on when one of few places is free.
"""

import sys
import threading
import time
from collections.abc import Callable
from typing import Final

from placement_server.candidates.errors import (
    OutOfTime,
    SearchGaveUp,
    TooManyHeavySearches,
    TooMuchMemory,
    WorkerOutOfMemory,
)
from placement_server.heap import return_free_memory

MIB: Final = 1024 * 1024

# Accounts ask for memory in steps, so that counting needs a lock seldom.
_STEP: Final = 256 * 1024
# After a search that held this much, free memory is handed back to the system.
_WORTH_RETURNING: Final = 8 * MIB


class SearchMemory:
    """Memory that all searches of a process hold, in bytes. Thread safe.

    :param per_search: the most that one search may hold.
    :param in_all: the most that all may hold, with the answers that are still being sent.
    :param return_memory: called after a search that held much.
    :ivar granted_size: memory granted to the open accounts.
    """

    def __init__(
        self,
        per_search: int,
        in_all: int,
        return_memory: Callable[[], None] = return_free_memory,
    ) -> None:
        self.per_search = per_search
        self.in_all = in_all
        self.return_memory = return_memory
        self.granted_size = 0
        self._lock = threading.Lock()

    @property
    def summaries(self) -> int:
        """The part for texts of provider summaries that are kept for later answers."""
        return self.in_all // 8

    def grant(self, size: int, *, heavy: bool) -> None:
        """Let a search hold this much more, or less when the size is negative.

        :raises WorkerOutOfMemory: all searches together would hold too much.
        """
        with self._lock:
            if size > 0:
                # What heavy searches may not take is there for those that need little.
                most = self.in_all - self.summaries - (self.in_all // 4 if heavy else 0)
                if self.granted_size + size > most:
                    raise WorkerOutOfMemory(most)
            self.granted_size += size


class Account:
    """Memory that one search holds, in bytes. It belongs to one thread at a time.

    :param memory: grants the memory; without it there is no limit.
    :ivar heavy: whether this is a heavy search, which leaves some memory to others.
    """

    __slots__ = ("_granted_bytes", "_memory", "_most_granted", "heavy", "held_bytes")

    def __init__(self, memory: SearchMemory | None = None) -> None:
        self._memory = memory
        self._granted_bytes: float = 0 if memory is not None else float("inf")
        self._most_granted: float = 0
        self.heavy = False
        self.held_bytes = 0

    def take(self, size: int) -> None:
        """Count memory that the search is about to hold.

        :raises SearchGaveUp: this search, or all together, would hold more than they may; then
            it is not counted.
        """
        self.held_bytes += size
        if self.held_bytes > self._granted_bytes:
            try:
                self._ask()
            except SearchGaveUp:
                self.held_bytes -= size
                raise

    def give(self, size: int) -> None:
        """Count memory that the search has dropped."""
        self.held_bytes -= size

    def _ask(self) -> None:
        memory = self._memory
        assert memory is not None
        if self.held_bytes > memory.per_search:
            raise TooMuchMemory(memory.per_search)
        self._change(min(self.held_bytes + _STEP, memory.per_search))

    def _change(self, granted_bytes: int) -> None:
        assert self._memory is not None
        self._memory.grant(granted_bytes - int(self._granted_bytes), heavy=self.heavy)
        self._granted_bytes = granted_bytes
        self._most_granted = max(self._most_granted, granted_bytes)

    def settle(self, size: int) -> None:
        """Hold only this much: the search is over, and its answer alone is left."""
        self.held_bytes = size
        if self._memory is not None and size < self._granted_bytes:
            self._change(size)

    def close(self) -> None:
        """Hold nothing any longer. To be called when what was counted has been dropped."""
        self.settle(0)
        if self._memory is not None and self._most_granted >= _WORTH_RETURNING:
            self._most_granted = 0
            self._memory.return_memory()

    def __del__(self) -> None:
        self.close()


class Deadline:
    """The time that all searches of one request have together, which begins now.

    :param seconds: after which they give up.
    :param clock: monotonic seconds, for all processes of the machine.
    """

    __slots__ = ("_clock", "_ends_at", "seconds")

    def __init__(
        self, seconds: float = float("inf"), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.seconds = seconds
        self._clock = clock
        self._ends_at = clock() + seconds

    def left(self) -> float:
        """Return the seconds that are left, negative when it is over."""
        return self._ends_at - self._clock()

    def require_left(self) -> float:
        """Return the seconds that are left.

        :raises OutOfTime: it is over, and nothing was found.
        """
        seconds = self.left()
        if seconds < 0:
            raise OutOfTime(self.seconds, 0)
        return seconds


# While heavy searches run, other threads get the interpreter after this many seconds instead of
# 0.005: an ordinary request waits for it a few dozen times.
_SWITCH_SECONDS: Final = 0.0005


class HeavySearches:
    """The places for heavy searches in one process. Thread safe.

    :param most: how many heavy searches may run at a time.
    :param seconds: the processor time after which a search is heavy.
    :param cpu: the processor time of the calling thread, in seconds.
    """

    def __init__(
        self, most: int, seconds: float, cpu: Callable[[], float] = time.thread_time
    ) -> None:
        self.most = most
        self.seconds = seconds
        self.cpu = cpu
        self._places = threading.Semaphore(most)
        self._running_count = 0
        self._lock = threading.Lock()
        self._usual_switch_seconds = 0.0

    def enter(self, seconds: float) -> bool:
        """Wait for a place for so many seconds at most; return whether there is one."""
        if not self._places.acquire(timeout=max(0.0, seconds)):
            return False
        with self._lock:
            self._running_count += 1
            if self._running_count == 1:
                self._usual_switch_seconds = sys.getswitchinterval()
                sys.setswitchinterval(min(self._usual_switch_seconds, _SWITCH_SECONDS))
        return True

    def leave(self) -> None:
        """Give a place back."""
        with self._lock:
            self._running_count -= 1
            if self._running_count == 0:
                sys.setswitchinterval(self._usual_switch_seconds)
        self._places.release()


class SearchEffort:
    """What one search has spent, in the thread that made this.

    :param places: where heavy searches run; without it no search is heavy.
    :param on_heavy: called once, before a search that is heavy now waits for its place.
    :ivar heavy: whether the search is heavy and has a place.
    """

    def __init__(
        self, places: HeavySearches | None = None, on_heavy: Callable[[], None] = lambda: None
    ) -> None:
        self._places = places
        self._on_heavy = on_heavy
        self._heavy_from = places.cpu() + places.seconds if places is not None else float("inf")
        self.heavy = False

    def look(self, seconds_left: float) -> None:
        """Wait for a place if the search is heavy by now; let others run if it has one.

        :param seconds_left: until the deadline of the search.
        :raises TooManyHeavySearches: there was no place until then.
        """
        places = self._places
        if places is None or self.heavy or places.cpu() < self._heavy_from:
            return
        self._on_heavy()
        if not places.enter(seconds_left):
            raise TooManyHeavySearches(places.most)
        self.heavy = True

    def end(self) -> None:
        """Give the place back. May be called again."""
        if self.heavy and self._places is not None:
            self.heavy = False
            self._places.leave()
