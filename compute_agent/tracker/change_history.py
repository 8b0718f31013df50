"""Last changes that this process wrote to placement, and what of the host they took away."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from compute_agent.report.written_changes import WrittenChange

LENGTH: Final = 100


class PastChange(NamedTuple):
    """One change. `at` in seconds since the epoch."""

    at: float
    node: str
    text: str
    is_loss: bool


class ChangeHistory:
    """Changes as they were written. Safe for threads."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._changes: deque[PastChange] = deque(maxlen=LENGTH)
        self._losses: dict[tuple[str, str, str | None], PastChange] = {}

    def record(self, node: str, changes: Iterable[WrittenChange]) -> None:
        """Take in what was written just now; what comes back is not lost any more."""
        now = time.time()
        with self._mutex:
            for change in changes:
                past = PastChange(now, node, change.text, change.is_loss)
                self._changes.append(past)
                key = (node, change.provider, change.resource_class)
                self._losses.pop(key, None)
                if change.is_loss:
                    self._losses[key] = past

    def changes(self) -> list[PastChange]:
        """Return the last changes, the oldest first."""
        with self._mutex:
            return list(self._changes)

    def losses(self, node: str) -> list[PastChange]:
        """Return what a node has less of since this process runs."""
        with self._mutex:
            return [past for past in self._losses.values() if past.node == node]
