"""Values by key, kept for some seconds, and conditions, kept while they last."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from msgspec import Struct, field

K = TypeVar("K")
V = TypeVar("V")


class KeptValues(Struct, Generic[K, V], eq=False):
    """Values by key. Safe for several threads.

    :ivar seconds: for which a value is good.
    :ivar clock: seconds that only grow.
    :ivar most: of the values that are kept; the oldest goes first. None: no limit.
    """

    seconds: float
    clock: Callable[[], float] = time.monotonic
    most: int | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _values: dict[K, tuple[float, V]] = {}

    def get(self, key: K) -> V | None:
        """Return the value of a key while it is good."""
        with self._lock:
            kept_at, value = self._values.get(key, (-math.inf, None))
            return value if kept_at > self.clock() - self.seconds else None

    def old(self, key: K) -> V | None:
        """Return the value of a key, good or not: for want of a newer one."""
        with self._lock:
            return self._values.get(key, (0.0, None))[1]

    def keep(self, key: K, value: V) -> V:
        """Keep a value from now on, and return it."""
        with self._lock:
            self._values.pop(key, None)
            if self.most is not None and len(self._values) >= self.most:
                self._values.pop(next(iter(self._values)))
            self._values[key] = (self.clock(), value)
        return value

    def is_new(self, key: K, value: V) -> bool:
        """Keep a value unless there is a good one; return whether it was kept."""
        is_new = self.get(key) is None
        if is_new:
            self.keep(key, value)
        return is_new

    def forget(self) -> None:
        """Forget all values."""
        with self._lock:
            self._values.clear()


class LastingConditions:
    """The conditions that were logged last, by what they are about. Safe for several threads.

    Each is logged once: when it begins, and when it has changed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._conditions: dict[Hashable, Hashable] = {}

    def is_new(self, subject: Hashable, condition: Hashable = True) -> bool:
        """Record the condition of a subject; return whether it was not the last one recorded."""
        with self._lock:
            before, self._conditions[subject] = self._conditions.get(subject), condition
            return before != condition

    def is_over(self, subject: Hashable) -> bool:
        """Record that a subject has no condition; return whether it had one."""
        with self._lock:
            return self._conditions.pop(subject, None) is not None

    def new_among(self, subject: Hashable, sentences: Iterable[str]) -> list[str]:
        """Record all that is true of a subject now; return what was not before, sorted."""
        with self._lock:
            before = self._conditions.get(subject)
            known_sentences = before if isinstance(before, frozenset) else frozenset()
            now = self._conditions[subject] = frozenset(sentences)
            return sorted(now - known_sentences)
