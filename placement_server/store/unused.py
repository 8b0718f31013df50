"""Projects, users, consumer types and aggregates that nothing refers to, marked and then deleted.

They are made on first use. A row that is out of use is marked: its `updated_at`, otherwise that of
its creation, becomes the time. A later run deletes it, if the mark is a day old and the row is
still out of use. A writer that looks up a marked row removes the mark in its transaction
(`unmark`), and no worker remembers an id for as long as a day
(`placement_server.store.known_owners`). So no id that is about to be used is
deleted, while servers run.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import sqlalchemy as sa

from placement_server.store.dialects.batches import chunks
from placement_server.store.tables import (
    consumer_types,
    consumers,
    placement_aggregates,
    projects,
    resource_provider_aggregates,
    users,
)
from placement_server.store.transaction import LostRace, ReadTransaction, WriteTransaction

MARKED_FOR: Final = timedelta(days=1)

_USES: Final[dict[sa.Table, sa.Column[int | None]]] = {
    projects: consumers.c.project_id,
    users: consumers.c.user_id,
    consumer_types: consumers.c.consumer_type_id,
    placement_aggregates: resource_provider_aggregates.c.aggregate_id,
}


class UnusedRows(NamedTuple):
    """Ids of rows of one table that nothing refers to.

    :ivar due_ids: those whose mark is old enough.
    :ivar marked_ids: those that have been marked for less.
    :ivar unmarked_ids: those without a mark.
    """

    due_ids: list[int]
    marked_ids: list[int]
    unmarked_ids: list[int]


def is_marked(table: sa.Table) -> sa.ColumnElement[bool]:
    """Return the condition for rows that have a mark."""
    return table.c.updated_at > table.c.created_at


def find(tx: ReadTransaction, now: datetime) -> dict[str, UnusedRows]:
    """Return the unused rows by table."""
    return {table.name: _of(tx, table, now) for table in _USES}


def _of(tx: ReadTransaction, table: sa.Table, now: datetime) -> UnusedRows:
    used_ids = set(tx.execute(sa.select(_USES[table]).distinct()).scalars())
    rows = tx.execute(
        sa.select(table.c.id, table.c.updated_at, is_marked(table)).order_by(table.c.id)
    )
    unused_rows = UnusedRows([], [], [])
    for row_id, marked_at, is_row_marked in rows:
        if row_id in used_ids:
            continue
        if not is_row_marked:
            unused_rows.unmarked_ids.append(row_id)
        elif marked_at <= now - MARKED_FOR:
            unused_rows.due_ids.append(row_id)
        else:
            unused_rows.marked_ids.append(row_id)
    return unused_rows


def prune(tx: WriteTransaction, table_name: str) -> UnusedRows:
    """Delete the rows of a table that are due, and mark those that are out of use now.

    :returns: what was deleted, left and marked.
    """
    table = next(table for table in _USES if table.name == table_name)
    unused_rows = _of(tx, table, tx.now)
    is_due = sa.and_(is_marked(table), table.c.updated_at <= tx.now - MARKED_FOR)
    for ids in chunks(unused_rows.due_ids):
        tx.execute(sa.delete(table).where(table.c.id.in_(ids), is_due))
    mark = {
        "created_at": sa.func.coalesce(table.c.created_at, tx.now - timedelta(days=1)),
        "updated_at": tx.now,
    }
    for ids in chunks(unused_rows.unmarked_ids):
        tx.execute(sa.update(table).where(table.c.id.in_(ids)).values(mark))
    return unused_rows


def unmark(tx: WriteTransaction, table: sa.Table, ids: Sequence[int]) -> None:
    """Remove the marks of rows that were found with one and are to be used.

    :raises LostRace: one of them has been deleted since.
    """
    for chunk in chunks(sorted(ids)):
        statement = (
            sa.update(table).where(table.c.id.in_(chunk)).values(updated_at=table.c.created_at)
        )
        if tx.execute(statement).rowcount != len(chunk):
            raise LostRace("A row that was out of use has been deleted since it was read.")
