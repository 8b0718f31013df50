"""The records of consumers: one exists if and only if the consumer has allocations.

A write of several consumers locks their records first, in one order. A write of one consumer locks
nothing, unless it makes a project, user or type: its record changes only while it still has the
generation that was read, which proves that its allocations are those that were read, as every
change of them raises the generation.

Projects, users and consumer types are made on first use. None is renamed, and one is removed only
when it has been out of use for much longer than a process remembers the ids that it has seen
(`placement_server.store.unused`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, zip_longest
from operator import itemgetter
from typing import Final

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy import bindparam, literal, select

from placement_server.store import unused
from placement_server.store.dialects import plain
from placement_server.store.dialects.batches import Insertion, among, chunks, stamp
from placement_server.store.errors import ConsumerGenerationConflict
from placement_server.store.known_owners import OwnerIds
from placement_server.store.records import ANY, KEEP, ConsumerWrite
from placement_server.store.tables import consumer_types, consumers, projects, users
from placement_server.store.transaction import LostRace, WriteTransaction

_PROJECT, _USER, _TYPE = range(3)
_TABLES: Final = (projects, users, consumer_types)
_NAME_COLUMNS: Final = (projects.c.external_id, users.c.external_id, consumer_types.c.name)

_FIND: Final = sa.union_all(
    *(
        select(
            literal(number).label("kind"),
            table.c.id,
            name.label("name"),
            unused.is_marked(table).label("marked"),
        ).where(name.in_(bindparam(parameter, expanding=True)))
        for number, table, name, parameter in zip(
            range(3), _TABLES, _NAME_COLUMNS, ("projects", "users", "types"), strict=True
        )
    )
)


def ensure_owners(
    tx: WriteTransaction,
    project_ids: Iterable[str],
    user_ids: Iterable[str],
    type_names: Iterable[str],
    *,
    before_inserting: Callable[[], None] = lambda: None,
) -> OwnerIds:
    """Return the ids of these projects, users and consumer types; insert those that are new.

    The loser of the race for a new name waits for the winner, fails on the unique key and is
    retried. All writers insert in the same order, so they wait without deadlock.

    :param before_inserting: is called if some are new or marked, to take locks that come before
        theirs.
    """
    all_names = (sorted(set(project_ids)), sorted(set(user_ids)), sorted(set(type_names)))
    known_ids = tx.known_owners.ids
    if all(map(_are_in, known_ids, all_names)):
        return known_ids
    owner_ids, marked_names = _find(tx, all_names)
    if any(marked_names):
        before_inserting()
        for table, ids, names_of_table in zip(_TABLES, owner_ids, marked_names, strict=True):
            unused.unmark(tx, table, [ids[name] for name in names_of_table])
    else:
        # the mark of a marked one is still there if this transaction fails
        tx.known_owners.learn(OwnerIds(*map(dict, owner_ids)))
    new_names = [
        [name for name in names if name not in ids]
        for names, ids in zip(all_names, owner_ids, strict=True)
    ]
    if any(new_names):
        before_inserting()
        for table, column, names in zip(_TABLES, _NAME_COLUMNS, new_names, strict=True):
            if names:
                rows = Insertion(table.name, ((column.name, "text"),), [(name,) for name in names])
                tx.batches.insert(tx.connection, [rows], tx.now)
        for ids, inserted_ids in zip(owner_ids, _find(tx, new_names)[0], strict=True):
            ids.update(inserted_ids)
    return owner_ids


def _are_in(ids: Mapping[str, int], names: Iterable[str]) -> bool:
    return ids.keys() >= set(names)


def _find(
    tx: WriteTransaction, all_names: Sequence[Sequence[str]]
) -> tuple[OwnerIds, tuple[set[str], set[str], set[str]]]:
    """Return the ids of those names that exist, and which of them are marked as out of use."""
    owner_ids = OwnerIds({}, {}, {})
    marked_names: tuple[set[str], set[str], set[str]] = (set(), set(), set())
    parts = [chunks(names) for names in all_names]
    for projects_, users_, types in zip_longest(*parts, fillvalue=()):
        parameters = {"projects": projects_, "users": users_, "types": types}
        for kind, row_id, name, is_marked in tx.execute(_FIND, parameters):
            owner_ids[kind][name] = row_id
            if is_marked:
                marked_names[kind].add(name)
    return owner_ids, marked_names


_C: Final = consumers.c

# Always in the order of the uuids, here and where new ones are inserted.
_LOCK: Final = select(_C.id).where(among(_C.uuid, "uuids")).order_by(_C.uuid).with_for_update()
# Consumers of one statement that changes them: for each it may try the values of all others.
_CHANGED: Final = 500
_COLUMNS: Final = (
    ("uuid", "text"),
    ("project_id", "int"),
    ("user_id", "int"),
    ("consumer_type_id", "int"),
    ("generation", "int"),
)


class SeenConsumer(Struct):
    """A consumer of the request as it was read.

    :ivar id: `None` when there is no record.
    :ivar old_allocations: its present allocations: provider id, class id, amount.
    """

    write: ConsumerWrite
    id: int | None = None
    generation: int = 0
    old_allocations: list[tuple[int, int, int]] = []


def lock(tx: WriteTransaction, writes: Sequence[ConsumerWrite]) -> None:
    """Lock those records of the consumers that exist, in the order of their uuids."""
    tx.execute_among(_LOCK, "uuids", (write.uuid for write in writes))


def check_generations(consumers: Sequence[SeenConsumer]) -> None:
    """Check that the consumers have the generations that their writers expect.

    :raises ConsumerGenerationConflict: for the first that has another.
    """
    for consumer in consumers:
        expected_generation = consumer.write.expected_generation
        if expected_generation is ANY:
            continue
        # a record without allocations is a leftover of older software, not a consumer
        exists = consumer.id is not None and consumer.old_allocations
        actual = consumer.generation if exists else None
        if expected_generation != actual:
            raise ConsumerGenerationConflict(consumer.write.uuid, actual, expected_generation)


def delete_allocations(tx: WriteTransaction, consumers: Sequence[SeenConsumer]) -> None:
    """Delete the allocations of the consumers, without a change of the use of inventories.

    :raises LostRace: they are not those that were read.
    """
    uuids = [consumer.write.uuid for consumer in consumers if consumer.old_allocations]
    if not uuids:
        return
    deleted_count = tx.count_among("DELETE FROM allocations WHERE consumer_id ", uuids)
    if deleted_count != sum(len(consumer.old_allocations) for consumer in consumers):
        raise LostRace("The allocations of a consumer of the request changed since they were read.")


def store_records(tx: WriteTransaction, consumers: Sequence[SeenConsumer]) -> Insertion:
    """Raise the generations of the consumers, or delete the records of those left without any.

    :returns: the new records, which are still to be inserted.
    :raises LostRace: a record is not the one that was read.
    """
    gone = [
        (consumer.id, consumer.generation)
        for consumer in consumers
        if consumer.id is not None and not consumer.write.allocations
    ]
    if gone:
        _change(tx, "DELETE FROM consumers", gone)
    living_consumers = [consumer for consumer in consumers if consumer.write.allocations]
    writes = [consumer.write for consumer in living_consumers]
    types = (write.consumer_type for write in writes)
    ids_by_name = ensure_owners(
        tx,
        {write.project_id for write in writes},
        {write.user_id for write in writes},
        {name for name in types if isinstance(name, str)},
        before_inserting=lambda: lock(
            tx, [consumer.write for consumer in living_consumers if consumer.id is not None]
        ),
    )
    new_rows: list[tuple[str, int, int, int | None, int]] = []
    raised: list[tuple[int, int, int, int, int | str | None]] = []
    for consumer, write in zip(living_consumers, writes, strict=True):
        project_id = ids_by_name.projects[write.project_id]
        user_id = ids_by_name.users[write.user_id]
        name = write.consumer_type
        type_id = ids_by_name.types[name] if isinstance(name, str) else None
        if consumer.id is None:
            new_rows.append((write.uuid, project_id, user_id, type_id, 1))
        else:
            new_type = "consumer_type_id" if name is KEEP else type_id
            raised.append((consumer.id, consumer.generation, project_id, user_id, new_type))
    if raised:
        _change(
            tx,
            "UPDATE consumers SET generation = generation + 1, project_id = {}, user_id = {}, "
            f"consumer_type_id = {{}}, updated_at = {tx.batches.moment}",
            raised,
            stamp(tx.now),
        )
    new_rows.sort()
    return Insertion("consumers", _COLUMNS, new_rows)


def _change(
    tx: WriteTransaction,
    text: str,
    all_rows: Sequence[tuple[int | str | None, ...]],
    *last_parameters: object,
) -> None:
    """Execute a statement on the records of any consumers, a bounded number at a time.

    :param text: the statement up to its condition, with a place for each new value.
    :param all_rows: of each consumer the id, the generation that was read, and the new values.
    :param last_parameters: those of the text itself, behind all values.
    :raises LostRace: a record is not the one that was read.
    """
    for rows in chunks(sorted(all_rows, key=itemgetter(0)), _CHANGED):
        ids, generations, *columns = zip(*rows, strict=True)
        texts, values = [], []
        for column in (*columns, generations):
            expression, parameters = _by_id(tx.batches.mark, ids, column)
            texts.append(expression)
            values.append(parameters)
        are_seen, seen_ids = tx.batches.among(ids)
        statement = f"{text.format(*texts)} WHERE generation = {texts[-1]} AND id {are_seen}"
        parameters = (*chain(*values[:-1]), *last_parameters, *values[-1], *seen_ids)
        if plain.count(tx.connection, statement, parameters) != len(rows):
            raise LostRace("A consumer of the request changed since it was read.")


def _by_id(
    mark: str, ids: Sequence[object], values: Sequence[int | str | None]
) -> tuple[str, tuple[object, ...]]:
    """Return an expression that is for each id the value at the same place; its parameters.

    The text for one consumer is always the same, which a database needs to prepare only once.
    """
    ids_by_value: dict[int | str | None, list[str]] = {}
    for row_id, value in zip(ids, values, strict=True):
        ids_by_value.setdefault(value, []).append(str(row_id))
    *others, (last, _) = [
        (value if isinstance(value, str) else mark, its) for value, its in ids_by_value.items()
    ]
    cases = [f"WHEN id IN ({', '.join(its)}) THEN {value} " for value, its in others]
    parameters = tuple(value for value in ids_by_value if not isinstance(value, str))
    return (f"CASE {''.join(cases)}ELSE {last} END" if cases else last), parameters
