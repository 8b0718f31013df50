"""The feed of changes: which trees were touched, in which order they were numbered."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import sqlalchemy as sa
from sqlalchemy import func, select

from placement_server.store.tables import changes
from placement_server.store.transaction import NAMES, STRUCTURE, USAGE, WriteTransaction

__all__ = ["NAMES", "STRUCTURE", "USAGE", "prune"]

KEPT_ROWS: Final = 20_000
KEPT_FOR: Final = timedelta(minutes=10)


def prune(tx: WriteTransaction) -> int:
    """Delete old rows; returns how many. The newest stay, so that followers can go on.

    A follower whose last row is gone has fallen behind, and must read everything again.
    """
    newest = tx.execute(select(func.max(changes.c.id))).scalar()
    if newest is None:
        return 0
    return tx.execute(
        sa.delete(changes).where(
            changes.c.id <= newest - KEPT_ROWS, changes.c.created_at < tx.now - KEPT_FOR
        )
    ).rowcount
