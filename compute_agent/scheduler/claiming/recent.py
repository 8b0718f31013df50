"""Consumers for which a scheduler claimed lately, whose instances may still be on their way."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from typing import Final

ON_THE_WAY_SECONDS: Final = 3600.0
"""Time in which an instance reaches its host: downloads of images, and builds that wait."""


class RecentClaims:
    """Memory of one process; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._claimed_at: dict[str, float] = {}

    def record(self, consumers: Collection[str]) -> None:
        """Remember that claims for these consumers begin now."""
        now = time.monotonic()
        with self._lock:
            for consumer in consumers:
                self._claimed_at.pop(consumer, None)
                self._claimed_at[consumer] = now
            # in the order of their times
            while now - next(iter(self._claimed_at.values()), now) >= ON_THE_WAY_SECONDS:
                del self._claimed_at[next(iter(self._claimed_at))]

    def consumers(self) -> list[str]:
        """Return the consumers that may be on their way."""
        earliest = time.monotonic() - ON_THE_WAY_SECONDS
        with self._lock:
            return [consumer for consumer, at in self._claimed_at.items() if at > earliest]
