"""Projects, users and consumer types: made on first use, never removed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy import bindparam, literal, select

from placement_server.store.tables import consumer_types, projects, users
from placement_server.store.transaction import WriteTransaction

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


class OwnerIds(NamedTuple):
    """Ids by name."""

    projects: dict[str, int]
    users: dict[str, int]
    types: dict[str, int]


def ensure(
    tx: WriteTransaction,
    project_ids: Iterable[str],
    user_ids: Iterable[str],
    type_names: Iterable[str],
) -> OwnerIds:
    """The ids of these projects, users and consumer types; new ones are inserted.

    Who loses the race for a new name waits for the winner, fails on the unique key and is begun
    anew. All writers insert in the same order, so they wait without deadlock.
    """
    wanted = (sorted(set(project_ids)), sorted(set(user_ids)), sorted(set(type_names)))
    found: OwnerIds = OwnerIds({}, {}, {})
    parameters = dict(zip(("projects", "users", "types"), wanted, strict=True))
    for kind, row_id, name in tx.execute(_FIND, parameters):
        found[kind][name] = row_id
    for kind, names in enumerate(wanted):
        for name in names:
            if name not in found[kind]:
                inserted = tx.execute(
                    sa.insert(_TABLES[kind]),
                    {_NAME_COLUMNS[kind].name: name, "created_at": tx.now, "updated_at": tx.now},
                )
                found[kind][name] = tx.new_id(inserted)
    return found
