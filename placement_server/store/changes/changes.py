"""The feed of changes: records of the trees that were touched, in the order of their ids."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

import sqlalchemy as sa
from sqlalchemy import func, select

from placement_server.store.changes import past_changes
from placement_server.store.tables import changes
from placement_server.store.transactions.transaction import (
    NAMES,
    STRUCTURE,
    USAGE,
    VOID,
    ReadTransaction,
    WriteTransaction,
)

__all__ = ["NAMES", "STRUCTURE", "USAGE", "VOID", "old_records", "prune", "record"]

KEPT_ROWS: Final = 20_000
KEPT_FOR: Final = timedelta(minutes=10)
AWAITED_FOR: Final = timedelta(minutes=1)
"""Time for which readers ask for an id that is missing."""


def record(tx: WriteTransaction, touched_roots: Iterable[tuple[int, int]]) -> None:
    """Record changes that another transaction made: pairs of root id and kind."""
    for root_id, kind in touched_roots:
        tx.touch([root_id], kind)


def prune(tx: WriteTransaction) -> int:
    """Delete old change records, and past changes that were kept long enough.

    The newest records stay, so that followers can go on.

    A follower whose last record is gone has fallen behind, and must read everything again.

    :returns: the number of records deleted.
    """
    past_changes.prune(tx)
    condition = _old_condition(tx, tx.now)
    return 0 if condition is None else tx.execute(sa.delete(changes).where(condition)).rowcount


def old_records(tx: ReadTransaction, now: datetime) -> int:
    """Count the records that `prune` would delete."""
    condition = _old_condition(tx, now)
    if condition is None:
        return 0
    count: int = tx.execute(select(func.count()).select_from(changes).where(condition)).scalar_one()
    return count


def _old_condition(tx: ReadTransaction, now: datetime) -> sa.ColumnElement[bool] | None:
    newest = tx.execute(select(func.max(changes.c.id))).scalar()
    if newest is None:
        return None
    return sa.and_(changes.c.id <= newest - KEPT_ROWS, changes.c.created_at < now - KEPT_FOR)
