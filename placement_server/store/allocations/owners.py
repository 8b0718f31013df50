"""Projects, users and consumer types: made on first use, never removed.

Because none is ever removed or renamed, a process may remember the ids that it has seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

import sqlalchemy as sa
from sqlalchemy import bindparam, literal, select

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
        select(literal(number).label("kind"), table.c.id, name.label("name")).where(
            name.in_(bindparam(parameter, expanding=True))
        )
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
    """The ids of these projects, users and consumer types; new ones are inserted.

    ``before_inserting`` is called when there are such, to take locks that come before theirs.

    Who loses the race for a new name waits for the winner, fails on the unique key and is begun
    anew. All writers insert in the same order, so they wait without deadlock.
    """
    wanted = (sorted(set(project_ids)), sorted(set(user_ids)), sorted(set(type_names)))
    known = tx.known_owners.among(wanted)
    if known is not None:
        return known
    found = _find(tx, wanted)
    tx.known_owners.learn(OwnerIds(*(dict(ids) for ids in found)))
    new = [
        [name for name in names if name not in ids]
        for names, ids in zip(wanted, found, strict=True)
    ]
    if any(new):
        before_inserting()
        for table, column, names in zip(_TABLES, _NAME_COLUMNS, new, strict=True):
            if names:
                rows = Insertion(table.name, [(column.name, "text")], [(name,) for name in names])
                tx.batches.insert(tx.connection, [rows], tx.now)
        for ids, inserted in zip(found, _find(tx, new), strict=True):
            ids.update(inserted)
    return found


def _find(tx: WriteTransaction, names: Sequence[Sequence[str]]) -> OwnerIds:
    """The ids of the names that there are."""
    found = OwnerIds({}, {}, {})
    parts = [chunks(some) for some in names]
    for projects_, users_, types in zip_longest(*parts, fillvalue=()):
        parameters = {"projects": projects_, "users": users_, "types": types}
        for kind, row_id, name in tx.execute(_FIND, parameters):
            found[kind][name] = row_id
    return found
