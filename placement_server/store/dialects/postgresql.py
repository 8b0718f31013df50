"""Batches on PostgreSQL: few and constant statements, which the server prepares once.

A handful of rows is written as a list of values, more as arrays through ``unnest``: short lists
cost less to send, and long ones would be a new statement for every length.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Final

from sqlalchemy import Connection

from placement_server.store.dialects.batches import Batches, Insertion, InventoryChange

_LISTED: Final = 8

# An UPDATE of many rows promises no order of its locks, a sorted FOR UPDATE does.
_BUMP: Final = (
    "held AS MATERIALIZED (SELECT id AS held_id FROM resource_providers "
    "WHERE id = ANY(%s::int[]) ORDER BY id FOR NO KEY UPDATE), "
    "raised AS (UPDATE resource_providers "
    "SET generation = generation + (id = ANY(%s::int[]))::int, "
    "updated_at = CASE WHEN id = ANY(%s::int[]) THEN %s::timestamp ELSE updated_at END "
    "FROM held WHERE id = held_id AND root_provider_id = ANY(%s::int[]) RETURNING 1)"
)
_BUMP_ONE: Final = (
    "raised AS (UPDATE resource_providers SET generation = generation + 1, "
    "updated_at = %s::timestamp WHERE id = %s AND root_provider_id = %s RETURNING 1)"
)
_APPEND: Final = (
    "INSERT INTO changes (created_at, write_id, root_provider_id, kind) "
    "SELECT %s::timestamp, %s::bigint, * FROM "
)
_CHANGE_ONE: Final = (
    "UPDATE inventories SET used = used + %s WHERE id = %s "
    "AND (%s <= 0 OR used + %s <= capacity) "
    "AND min_unit <= %s AND max_unit >= %s AND (%s = 0 OR step_size = %s)"
)
_CHANGE: Final = (
    "WITH wanted (wanted_id, delta, smallest, largest, step) AS (SELECT * FROM {wanted}), "
    "held AS MATERIALIZED (SELECT wanted.* FROM inventories JOIN wanted ON id = wanted_id "
    "ORDER BY resource_provider_id, resource_class_id FOR NO KEY UPDATE OF inventories) "
    "UPDATE inventories SET used = used + delta FROM held WHERE id = wanted_id "
    "AND (delta <= 0 OR used + delta <= capacity) "
    "AND min_unit <= smallest AND max_unit >= largest AND (step = 0 OR step_size = step)"
)
_CHANGE_KINDS: Final = ("int", "bigint", "int", "int", "int")


class PostgresqlBatches(Batches):
    """Several statements become one where nothing depends on the order among them."""

    family = "postgresql"

    def among(self, values: Sequence[str]) -> tuple[str, tuple[object, ...]]:
        if len(values) == 1:
            return "= %s", (values[0],)
        return "= ANY(%s)", (list(values),)

    def insert(
        self, connection: Connection, insertions: Sequence[Insertion], now: datetime
    ) -> None:
        some = [insertion for insertion in insertions if insertion.rows]
        if not some:
            return
        texts = []
        parameters: list[object] = []
        for table, columns, rows in some:
            names = ", ".join(name for name, _ in columns)
            source, values = _rows([kind for _, kind in columns], rows)
            texts.append(
                f"INSERT INTO {table} (created_at, updated_at, {names}) "
                f"SELECT %s::timestamp, %s::timestamp, * FROM {source}"
            )
            parameters += (now, now, *values)
        *others, last = texts
        first = [f"other_{number} AS ({text})" for number, text in enumerate(others)]
        head = f"WITH {', '.join(first)} " if first else ""
        connection.exec_driver_sql(head + last, tuple(parameters))

    def change_inventories(self, connection: Connection, changes: Sequence[InventoryChange]) -> int:
        if not changes:
            return 0
        if len(changes) == 1:
            (one,) = changes
            cursor = connection.exec_driver_sql(
                _CHANGE_ONE,
                (
                    one.delta,
                    one.inventory_id,
                    one.delta,
                    one.delta,
                    one.smallest,
                    one.largest,
                    one.step_size,
                    one.step_size,
                ),
            )
        else:
            wanted, values = _rows(
                _CHANGE_KINDS,
                [
                    (one.inventory_id, one.delta, one.smallest, one.largest, one.step_size)
                    for one in changes
                ],
            )
            cursor = connection.exec_driver_sql(_CHANGE.format(wanted=wanted), values)
        return int(cursor.rowcount)

    def bump_generations(
        self,
        connection: Connection,
        provider_ids: Sequence[int],
        bumped: Collection[int],
        root_ids: Collection[int],
        now: datetime,
    ) -> int:
        bump, parameters = _bump(provider_ids, bumped, root_ids, now)
        cursor = connection.exec_driver_sql(f"WITH {bump} SELECT count(*) FROM raised", parameters)
        return int(cursor.scalar_one())

    def append_changes(
        self, connection: Connection, rows: Sequence[tuple[int, int]], write_id: int, now: datetime
    ) -> int:
        source, values = _rows(("int", "smallint"), rows)
        cursor = connection.exec_driver_sql(
            f"{_APPEND}{source} RETURNING id", (now, write_id, *values)
        )
        return int(cursor.all()[0][0])

    def bump_and_append(
        self,
        connection: Connection,
        provider_ids: Sequence[int],
        bumped: Collection[int],
        root_ids: Collection[int],
        rows: Sequence[tuple[int, int]],
        write_id: int,
        now: datetime,
    ) -> tuple[int, int]:
        bump, parameters = _bump(provider_ids, bumped, root_ids, now)
        source, values = _rows(("int", "smallint"), rows)
        cursor = connection.exec_driver_sql(
            f"WITH {bump} {_APPEND}{source} RETURNING id, (SELECT count(*) FROM raised)",
            (*parameters, now, write_id, *values),
        )
        change_id, found = cursor.all()[0]
        return int(found), int(change_id)


def _rows(
    kinds: Sequence[str], rows: Sequence[tuple[object, ...]]
) -> tuple[str, tuple[object, ...]]:
    """A FROM item with these rows, and its parameters."""
    if len(rows) > _LISTED:
        arrays = ", ".join(f"%s::{kind}[]" for kind in kinds)
        columns = tuple(list(column) for column in zip(*rows, strict=True))
        return f"unnest({arrays}) AS new_rows", columns
    row = f"({', '.join(f'%s::{kind}' for kind in kinds)})"
    values = tuple(value for one in rows for value in one)
    return f"(VALUES {', '.join([row] * len(rows))}) AS new_rows", values


def _bump(
    provider_ids: Sequence[int], bumped: Collection[int], root_ids: Collection[int], now: datetime
) -> tuple[str, tuple[object, ...]]:
    """The common table expression ``raised``, one row for each provider found."""
    if len(provider_ids) == len(bumped) == len(root_ids) == 1:
        return _BUMP_ONE, (now, *provider_ids, *root_ids)
    some = sorted(bumped)
    return _BUMP, (sorted(provider_ids), some, some, now, sorted(root_ids))
