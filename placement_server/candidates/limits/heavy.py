"""Heavy searches, which have used much processor time, and the few places for them.

All threads of a process share one interpreter, so each of many long searches would make every
other request wait. A search is light when it begins and never waits; once it has used some
processor time it is heavy, and goes on when one of few places is free.
"""

import sys
import threading
import time
from collections.abc import Callable
from typing import Final

from placement_server.candidates.errors import TooManyHeavySearches

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
