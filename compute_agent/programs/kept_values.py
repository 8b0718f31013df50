"""Values that are kept for some seconds, and then have to be found out again."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
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
