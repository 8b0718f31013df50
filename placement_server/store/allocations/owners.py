"""Projects, users and consumer types, which are made on first use.

None is renamed, and one is removed only when it has been out of use for much longer than a process
remembers the ids that it has seen (:mod:`~placement_server.store.unused`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

import sqlalchemy as sa
from sqlalchemy import bindparam, literal, select

from placement_server.store import unused
from placement_server.store.dialects import Insertion, chunks
from placement_server.store.tables import consumer_types, projects, users
from placement_server.store.transactions.known_owners import OwnerIds

if TYPE_CHECKING:
    from placement_server.store.transactions.transaction import WriteTransaction

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


def ensure(
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
    known_ids = tx.known_owners.among(all_names)
    if known_ids is not None:
        return known_ids
    owner_ids, marked_names = _find(tx, all_names)
    if any(marked_names):
        before_inserting()
        for table, ids, names_of_table in zip(_TABLES, owner_ids, marked_names, strict=True):
            unused.unmark(tx, table, [ids[name] for name in names_of_table])
    # the mark of a marked one is still there if this transaction fails
    tx.known_owners.learn(
        OwnerIds(
            *(
                {name: row_id for name, row_id in ids.items() if name not in names_of_table}
                for ids, names_of_table in zip(owner_ids, marked_names, strict=True)
            )
        )
    )
    new_names = [
        [name for name in names if name not in ids]
        for names, ids in zip(all_names, owner_ids, strict=True)
    ]
    if any(new_names):
        before_inserting()
        for table, column, names in zip(_TABLES, _NAME_COLUMNS, new_names, strict=True):
            if names:
                rows = Insertion(table.name, [(column.name, "text")], [(name,) for name in names])
                tx.batches.insert(tx.connection, [rows], tx.now)
        for ids, inserted_ids in zip(owner_ids, _find(tx, new_names)[0], strict=True):
            ids.update(inserted_ids)
    return owner_ids


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
