"""Last changes that the agent wrote to placement, over restarts, and what of the host they took."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from compute_agent.state.files import StateFile, StateUnusable
from compute_agent.state.shapes import BOOLEAN, NUMBER, TEXT, Shape, list_of, object_of

if TYPE_CHECKING:
    from compute_agent.report.written_changes import WrittenChange

LOG = logging.getLogger(__name__)

LENGTH: Final = 100
FILE: Final = "history.json"
SHAPE: Final = Shape(
    "the last changes that it wrote",
    object_of(
        {},
        {
            "changes": list_of(
                object_of({"at": NUMBER, "node": TEXT, "text": TEXT, "is_loss": BOOLEAN})
            )
        },
    ),
)


class PastChange(NamedTuple):
    """One change. `at` in seconds since the epoch."""

    at: float
    node: str
    text: str
    is_loss: bool


class ChangeHistory:
    """Changes as they were written. Safe for threads.

    :param state_path: the directory with the file that keeps them over restarts; None: nothing
        does. One that is damaged or cannot be written costs the history alone.
    """

    def __init__(self, state_path: Path | None = None) -> None:
        self.on_saved: Callable[[str], None] = lambda _why: None
        """Called after a write, with why it failed; empty: it did not."""
        self._mutex = threading.Lock()
        self._file = None if state_path is None else StateFile(state_path / FILE, SHAPE)
        self._changes: deque[PastChange] = deque(self._kept_changes(), maxlen=LENGTH)
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
            if self._file is None:
                return
            try:
                self._file.save({"changes": [past._asdict() for past in self._changes]})
            except StateUnusable as error:
                LOG.warning("The last changes will not survive a restart: %s", error)
                self.on_saved(str(error))
            else:
                self.on_saved("")

    def _kept_changes(self) -> list[PastChange]:
        try:
            document = {} if self._file is None else self._file.load()
        except StateUnusable as error:
            LOG.warning("The last changes before this start are not known: %s", error)
            return []
        return [
            PastChange(*(change[name] for name in PastChange._fields))
            for change in document.get("changes", ())
        ]

    def changes(self) -> list[PastChange]:
        """Return the last changes, the oldest first."""
        with self._mutex:
            return list(self._changes)

    def losses(self, node: str) -> list[PastChange]:
        """Return what a node has less of since this process runs."""
        with self._mutex:
            return [past for past in self._losses.values() if past.node == node]
