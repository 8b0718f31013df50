"""The part of the feed of changes that is final: no smaller id can still be committed.

::

    ids      1 2 3 . 5 6 . 8          settled = 3: the transaction with 4 may still commit

A missing id that does not appear within a moment is voided
(`void`). A longer range than transactions can hold is
a leap of the database's counter; it is passed over when the record behind it is a minute old.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

from placement_server.metrics import metrics
from placement_server.store.changes import changes, snapshot
from placement_server.store.changes.cursor import Gap, Position
from placement_server.store.errors import StoreError
from placement_server.store.store import Store
from placement_server.store.transaction import ReadTransaction

LOG = logging.getLogger(__name__)

GRACE: Final = 0.2
"""Seconds for which a missing id may appear by itself: most do within the time of a commit."""

PATIENCE: Final = 1.0
"""Seconds for which a request waits at most for ids below what is committed."""

LATE: Final = 30.0
"""Seconds for which ids may be missing before the log has it."""

LEAP: Final = 100_000
"""A range of more missing ids is a leap: one request changes at most 10,000 trees."""

_BATCH: Final = 20_000
"""Records that are read at once, and those in which a new process looks for missing ids."""

_VOIDED_AT_ONCE: Final = 10_000
_PAUSE: Final = 0.01


class Horizon:
    """The end of the final records, as one process knows it. Thread safe."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._voiding = threading.Lock()
        self._position: Position | None = None
        self._is_late = False

    def settle(self, begin_wait: Callable[[], None] = lambda: None) -> Position:
        """Return how far the feed is final, with all that is committed before this call.

        Less only where a transaction holds a smaller id for longer than `PATIENCE`.

        :param begin_wait: is called before it waits for one, perhaps more than once.
        :raises placement_server.store.errors.StoreUnavailable: the database failed.
        """
        until = time.monotonic() + PATIENCE
        position = self.advance()
        newest = position.last
        while position.settled_id < newest and time.monotonic() < until:
            begin_wait()
            time.sleep(_PAUSE)
            position = self.advance()
        return position

    def advance(self) -> Position:
        """Read the ids that are new, void those that are overdue, and return how far it is final.

        :raises placement_server.store.errors.StoreUnavailable: the database failed.
        """
        with self._lock:
            position = self._read()
        overdue = self._overdue(position)
        if overdue and self._voiding.acquire(blocking=False):
            try:
                self._void(overdue)
            finally:
                self._voiding.release()
            with self._lock:
                position = self._read()
        self._show_lag(position)
        return position

    def _show_lag(self, position: Position) -> None:
        lag = time.monotonic() - position.gaps[0].since if position.gaps else 0.0
        metrics.FEED_LAG.set(lag)
        if position.gaps and lag >= LATE and not self._is_late:
            self._is_late = True
            LOG.warning(
                "The feed of changes has waited %.0f s for change %d, which a transaction may yet "
                "commit: clients learn of no later change. Have the database list its open "
                "transactions, and end the one that does nothing any more.",
                lag,
                position.gaps[0].start,
            )
        elif not position.gaps and self._is_late:
            self._is_late = False
            LOG.info("The feed of changes waits for no transaction any more; it goes on.")

    def _read(self) -> Position:
        while True:
            now = time.monotonic()
            known_position = self._position
            ids: Sequence[int] = ()
            if known_position is not None:
                ids = self._store.read_single(changes.ids_from, known_position.settled_id, _BATCH)
            if known_position is None or (
                known_position.settled_id and known_position.settled_id not in ids[:1]
            ):
                # nothing is known yet, or it has been pruned
                self._position = self._without_leaps(self._store.read(_newest, now))
                return self._position
            self._position = self._without_leaps(known_position.after(ids, now, float("inf")))
            if len(ids) < _BATCH or self._position == known_position:
                return self._position

    def _without_leaps(self, position: Position) -> Position:
        return Position(position.last, tuple(gap for gap in position.gaps if self._is_awaited(gap)))

    def _is_awaited(self, gap: Gap) -> bool:
        if gap.stop - gap.start <= LEAP:
            return True
        behind = self._store.read_single(changes.written_at, gap.stop)
        return behind is None or datetime.now(UTC) - behind < changes.AWAITED_FOR

    def _overdue(self, position: Position) -> list[int]:
        now = time.monotonic()
        return [
            number
            for gap in position.gaps
            if now - gap.since >= GRACE and gap.stop - gap.start <= LEAP
            for number in range(gap.start, gap.stop)
        ][:_VOIDED_AT_ONCE]

    def _void(self, ids: list[int]) -> None:
        try:
            self._store.write(changes.void, ids)
        except changes.IdsHeld as reason:
            LOG.debug("Change records from %d on are held back: %s", ids[0], reason)
        except StoreError as error:
            LOG.warning(
                "The feed of changes stops at id %d: the ids after it, which interrupted writes "
                "left unused, could not be marked so. This is tried again: %s",
                ids[0] - 1,
                error,
            )


def _newest(tx: ReadTransaction, now: float) -> Position:
    ids = snapshot.newest_change_ids(tx, _BATCH)
    return Position(ids[0] if ids else 0).after(ids[1:], now, float("inf"))
