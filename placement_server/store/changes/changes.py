"""The feed of changes: records of the trees that were touched, in the order of their ids.

Ids of records are assigned before transactions commit, so a lower one may appear after a higher
one. Clients, who name trees by their uuids, are shown an id only when no smaller one can still
commit: the missing ids below it are taken by records of the kind VOID, which `void` inserts. That
waits for the transaction that holds an id. Where there is none any more, the id is used up; a
transaction that drew it and has not inserted its record yet fails then and is begun again. VOID
records stay, so all processes, also later ones, find the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy import func, select
from sqlalchemy.exc import DBAPIError

from placement_server.store.changes import past_changes
from placement_server.store.connection import failures
from placement_server.store.dialects.batches import chunks
from placement_server.store.errors import StoreError
from placement_server.store.tables import changes, resource_providers
from placement_server.store.transaction import ReadTransaction, WriteTransaction

KEPT_ROWS: Final = 20_000
KEPT_FOR: Final = timedelta(minutes=10)
AWAITED_FOR: Final = timedelta(minutes=1)
"""Time for which readers ask for an id that is missing."""

_C: Final = changes.c
_P: Final = resource_providers.c

_ROWS: Final = select(_C.id, _C.created_at, _C.root_provider_id, _C.kind, _P.uuid).join_from(
    changes, resource_providers, _P.id == _C.root_provider_id, isouter=True
)
_ENDS: Final = select(_C.id, _C.root_provider_id, _C.root_provider_uuid).where(
    _C.root_provider_uuid.is_not(None)
)
_OLDEST: Final = select(func.min(_C.id))


class IdsHeld(StoreError):
    """Transactions that have not ended hold some of the ids."""


class FeedRecord(Struct, frozen=True):
    """One change record.

    :ivar root_uuid: None for names, which belong to no tree.
    """

    id: int
    at: datetime
    root_uuid: str | None
    kind: int


def oldest(tx: ReadTransaction) -> int:
    """Return the id of the oldest record; that of the first one to come where there is none."""
    return tx.execute(_OLDEST).scalar() or 1


def ids_from(tx: ReadTransaction, start: int, most: int) -> Sequence[int]:
    """Return the ids of records from `start` on, ascending."""
    statement = select(_C.id).where(_C.id >= start).order_by(_C.id).limit(most)
    return tx.execute(statement).scalars().all()


def written_at(tx: ReadTransaction, change_id: int) -> datetime | None:
    """Return when the transaction of a record began; None where there is no such record."""
    at = tx.execute(select(_C.created_at).where(_C.id == change_id)).scalar()
    return at and at.replace(tzinfo=UTC)


def void(tx: WriteTransaction, ids: Sequence[int]) -> None:
    """Take ids that no transaction holds, so that none will appear later.

    It waits a moment for the transactions that hold some.

    :param ids: ascending.
    :raises IdsHeld: these transactions did not end.
    """
    try:
        for chunk in chunks(ids):
            tx.batches.void_changes(tx.connection, chunk, tx.write_id, tx.now)
    except DBAPIError as error:
        if failures.code_of(error) in failures.LOCKED:
            raise IdsHeld("Transactions that hold ids of change records have not ended.") from error
        raise


def page(
    tx: ReadTransaction,
    after: int,
    upto: int,
    *,
    kinds: Collection[int],
    roots: Collection[str] | None,
    most: int,
) -> list[FeedRecord]:
    """Read the records with ids behind `after` up to `upto`, at most so many, in order.

    :param roots: uuids of roots; None for all trees.
    """
    ends = past_changes.ends_of(tx.execute(_ENDS.where(_C.id > after)))
    statement = _ROWS.where(_C.id <= upto, _C.kind.in_(sorted(kinds))).order_by(_C.id)
    if roots is not None:
        ids = tx.execute(select(_P.id).where(_P.uuid.in_(sorted(roots)))).scalars().all()
        ended_ids = {key for key, its in ends.items() if any(uuid in roots for _, uuid in its)}
        statement = statement.where(_C.root_provider_id.in_(sorted(ended_ids.union(ids))))
    found_changes: list[FeedRecord] = []
    while (missing_count := most - len(found_changes)) > 0:
        rows = tx.execute(statement.where(_C.id > after).limit(missing_count)).all()
        for number, at, root_id, kind, present_uuid in rows:
            uuid = past_changes.ended_uuid(ends, root_id, number) or present_uuid
            # SQLite gives the id of the newest provider again once that is deleted
            if roots is None or uuid in roots:
                found_changes.append(FeedRecord(number, at.replace(tzinfo=UTC), uuid, kind))
        if len(rows) < missing_count:
            break
        after = rows[-1].id
    return found_changes


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
    newest = tx.execute(select(func.max(_C.id))).scalar()
    if newest is None:
        return None
    return sa.and_(_C.id <= newest - KEPT_ROWS, _C.created_at < now - KEPT_FOR)
