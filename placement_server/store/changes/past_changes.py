"""Past changes as they are read: by host, consumer and name, for as long as they are kept."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy import and_, or_, select

from placement_server.store.dialects.batches import among
from placement_server.store.tables import past_changes, resource_classes, resource_providers
from placement_server.store.transaction import AnyRow, ReadTransaction, WriteTransaction

PRUNED_AT_ONCE: Final = 20_000
"""Rows that one transaction deletes at most."""

_C: Final = past_changes.c
_P: Final = resource_providers.c
_ROWS: Final = select(
    _C.id,
    _C.root_provider_id,
    _C.created_at,
    _C.consumer_id,
    _C.request_id,
    _C.user_id,
    _C.document,
)
# Not "is not null", with which SQLite passes over the index of these rows.
_ENDS: Final = select(_C.id, _C.root_provider_id, _C.root_provider_uuid).where(
    _C.root_provider_uuid > ""
)
_ROOTS: Final = select(_P.id, _P.uuid, _P.name).where(among(_P.id, "ids"))
_NAMES: Final = select(_P.uuid, _P.name).where(among(_P.uuid, "uuids"))
_CLASSES: Final = select(resource_classes.c.id, resource_classes.c.name).where(
    among(resource_classes.c.id, "ids")
)


Ends = dict[int, list[tuple[int, str]]]
"""Root id -> ids of the records with which a tree ended that had it, ascending, and their uuids:
the records before, with the same root id, are about it."""


def ends_of(rows: Iterable[AnyRow]) -> Ends:
    """Return the ends in rows: id, root id, and the uuid of the root."""
    ends: Ends = {}
    for number, root_id, uuid in sorted(rows):
        ends.setdefault(root_id, []).append((number, uuid))
    return ends


def ended_uuid(ends: Ends, root_id: int, number: int) -> str | None:
    """Return the root of a record whose tree has ended since."""
    return next((uuid for end, uuid in ends.get(root_id, ()) if end >= number), None)


class Entry(NamedTuple):
    """One change. A class that does not exist any more has its number as its name.

    :ivar provider_name: None: the provider does not exist any more.
    :ivar what: see `placement_server.store.past_changes`.
    """

    provider_uuid: str
    provider_name: str | None
    what: str
    name: str
    before: int | str | None
    after: int | str | None


class PastWrite(Struct, frozen=True):
    """What one write changed of one host and, where it is about one, of one consumer."""

    id: int
    at: datetime
    root_uuid: str | None
    root_name: str | None
    consumer: str | None
    request_id: str
    user_id: str
    entries: list[Entry]


class PastQuery(Struct, frozen=True):
    """What is asked for.

    :ivar root: the uuid of a host; None: of all.
    :ivar name: of a class, a trait or an aggregate.
    :ivar before: only those with smaller ids, the newest first.
    :ivar after: only those with greater ids, the oldest first.
    """

    root: str | None = None
    consumer: str | None = None
    name: str | None = None
    before: int | None = None
    after: int | None = None
    most: int = 100


def read(tx: ReadTransaction, query: PastQuery) -> list[PastWrite]:
    """Return past changes."""
    statement = _ROWS
    if query.root is not None:
        statement = statement.where(_of_root(tx, query.root))
    if query.consumer is not None:
        statement = statement.where(_C.consumer_id == query.consumer)
    if query.name is not None:
        class_id = tx.execute(
            select(resource_classes.c.id).where(resource_classes.c.name == query.name)
        ).scalar()
        parts = [f'",{json.dumps(query.name)},"']
        if class_id is not None:
            parts.append(f'",{class_id},"')
        statement = statement.where(
            or_(*(_C.document.contains(part, autoescape=True) for part in parts))
        )
    if query.before is not None:
        statement = statement.where(_C.id < query.before)
    if query.after is not None:
        statement = statement.where(_C.id > query.after).order_by(_C.id)
    else:
        statement = statement.order_by(_C.id.desc())
    rows = tx.execute(statement.limit(query.most)).all()
    return _named(tx, [(*row[:-1], json.loads(row[-1])) for row in rows])


def _of_root(tx: ReadTransaction, uuid: str) -> sa.ColumnElement[bool]:
    """Return the condition for the rows of a host, also of one that has ended."""
    conditions: list[sa.ColumnElement[bool]] = [sa.false()]
    present_id = tx.execute(select(_P.id).where(_P.uuid == uuid)).scalar()
    ends = ends_of(tx.execute(_ENDS))
    for root_id in set(ends) if present_id is None else {*ends, present_id}:
        is_root, start = _C.root_provider_id == root_id, 0
        for end, ended_root in ends.get(root_id, ()):
            if ended_root == uuid:
                conditions.append(and_(is_root, _C.id.between(start + 1, end)))
            start = end
        if root_id == present_id:
            conditions.append(and_(is_root, _C.id > start))
    return or_(*conditions)


def _named(tx: ReadTransaction, rows: Sequence[tuple[Any, ...]]) -> list[PastWrite]:
    if not rows:
        return []
    ends = ends_of(tx.execute(_ENDS))
    roots = {
        number: (uuid, name)
        for number, uuid, name in tx.execute_among(_ROOTS, "ids", {row[1] for row in rows})
    }
    entries = [entry for row in rows for entry in row[-1]]
    names: dict[str, str] = dict(tx.execute_among(_NAMES, "uuids", {entry[0] for entry in entries}))
    class_ids = {entry[1] for entry in entries if isinstance(entry[1], int)}
    classes: dict[int, str] = dict(tx.execute_among(_CLASSES, "ids", class_ids))
    past_writes = []
    for number, root_id, at, consumer, request_id, user_id, found_entries in rows:
        ended_root = ended_uuid(ends, root_id, number)
        root_uuid, root_name = (
            (ended_root, None) if ended_root is not None else roots.get(root_id, (None, None))
        )
        named_entries = [
            Entry(
                uuid,
                names.get(uuid),
                what,
                classes.get(name, str(name)) if isinstance(name, int) else name,
                before,
                after,
            )
            for uuid, name, what, before, after in found_entries
        ]
        about = (root_uuid, root_name, consumer, request_id, user_id)
        past_writes.append(PastWrite(number, at.replace(tzinfo=UTC), *about, named_entries))
    return past_writes


def prune(tx: WriteTransaction) -> int:
    """Delete rows that have been kept long enough, so many at most; return how many."""
    cutoff = tx.now - timedelta(days=tx.history_days)
    oldest = select(_C.id, _C.created_at).order_by(_C.id).limit(PRUNED_AT_ONCE)
    old_ids = [number for number, at in tx.execute(oldest) if at is None or at < cutoff]
    tx.count_among("DELETE FROM past_changes WHERE id ", old_ids)
    return len(old_ids)
