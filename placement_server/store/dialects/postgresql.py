"""Batches on PostgreSQL: few and constant statements, which the server prepares once.

A handful of rows is written as a list of values, more as arrays through ``unnest``: short lists
cost less to send, and long ones would be a new statement for every length.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from sqlalchemy import Connection

from placement_server.store.dialects.batches import (
    Batches,
    Insertion,
    InventoryChange,
    Rise,
    Settled,
    Value,
)

_LISTED: Final = 8

_APPEND: Final = (
    "INSERT INTO changes (created_at, write_id, root_provider_id, kind) "
    "SELECT %s::timestamp, %s::bigint, * FROM "
)
_CHANGE_ONE: Final = (
    "UPDATE inventories SET used = used + %s WHERE id = %s "
    "AND (%s <= 0 OR used + %s <= capacity) "
    "AND min_unit <= %s AND max_unit >= %s AND (%s = 0 OR step_size = %s)"
)
# An UPDATE of many rows promises no order of its locks, a sorted FOR UPDATE does.
_HOLD: Final = (
    "wanted (wanted_id, delta, smallest, largest, step) AS (SELECT * FROM {wanted}), "
    "held AS MATERIALIZED (SELECT wanted.* FROM inventories JOIN wanted ON id = wanted_id "
    "ORDER BY resource_provider_id, resource_class_id FOR NO KEY UPDATE OF inventories)"
)
_CHANGE: Final = (
    "UPDATE inventories SET used = used + delta FROM held WHERE id = wanted_id "
    "AND (delta <= 0 OR used + delta <= capacity) "
    "AND min_unit <= smallest AND max_unit >= largest AND (step = 0 OR step_size = step)"
)
# That all inventories were changed is asked first: so no provider is locked before them.
_RAISE_ONE: Final = (
    "raised AS (UPDATE resource_providers SET generation = generation + 1, "
    "updated_at = %s::timestamp WHERE id = %s AND root_provider_id = %s "
    "AND (SELECT count(*) FROM applied) = %s RETURNING 1)"
)
_RAISE: Final = (
    "rising (rising_id, rising_root, raised) AS (SELECT * FROM {rising}), "
    "found AS MATERIALIZED (SELECT rising.* FROM resource_providers "
    "JOIN rising ON id = rising_id AND root_provider_id = rising_root "
    "WHERE (SELECT count(*) FROM applied) = %s ORDER BY id FOR NO KEY UPDATE OF "
    "resource_providers), "
    "raised AS (UPDATE resource_providers SET generation = generation + found.raised::int, "
    "updated_at = CASE WHEN found.raised THEN %s::timestamp ELSE updated_at END "
    "FROM found WHERE id = rising_id AND root_provider_id = rising_root RETURNING 1)"
)
# Likewise a note takes its number when all locks are held: whoever follows the notes waits for a
# missing number no longer than a commit may take.
_NOTE: Final = (
    "noted AS (" + _APPEND + "{notes} WHERE (SELECT count(*) FROM raised) = %s RETURNING id)"
)
_SETTLED: Final = (
    "SELECT (SELECT max(id) FROM noted), (SELECT count(*) FROM applied), "
    "(SELECT count(*) FROM raised)"
)
_RISE_KINDS: Final = ("int", "int", "boolean")
_NOTE_KINDS: Final = ("int", "smallint")
_CHANGE_KINDS: Final = ("int", "bigint", "int", "int", "int")


class PostgresqlBatches(Batches):
    """Several statements become one where nothing depends on the order among them."""

    family = "postgresql"
    moment = "%s::timestamp"
    # the planner takes an array for short, and uses the index
    few = "= ANY(ARRAY({}))"

    def among(self, values: Sequence[Value]) -> tuple[str, tuple[object, ...]]:
        if len(values) == 1:
            return "= %s", (values[0],)
        return "= ANY(%s)", (list(values),)

    def join_to_few(self, table: str, condition: str) -> str:
        # The planner does not know how few they are and would walk the whole table instead; over
        # an OFFSET it must ask for each of them.
        return f"CROSS JOIN LATERAL (SELECT * FROM {table} WHERE {condition} OFFSET 0) AS {table}"

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
        first, change, parameters = _change(changes)
        head = f"WITH {first} " if first else ""
        return int(connection.exec_driver_sql(head + change, parameters).rowcount)

    def append_changes(
        self, connection: Connection, rows: Sequence[tuple[int, int]], write_id: int, now: datetime
    ) -> int:
        source, values = _rows(_NOTE_KINDS, rows)
        cursor = connection.exec_driver_sql(
            f"{_APPEND}{source} RETURNING id", (now, write_id, *values)
        )
        return int(cursor.all()[0][0])

    def settle(
        self,
        connection: Connection,
        changes: Sequence[InventoryChange],
        rises: Sequence[Rise],
        notes: Sequence[tuple[int, int]],
        write_id: int,
        now: datetime,
    ) -> Settled:
        applying, change_values = _applying(changes)
        raising, raise_values = _raising(rises, len(changes), now)
        source, note_values = _rows(_NOTE_KINDS, notes)
        cursor = connection.exec_driver_sql(
            f"WITH {applying}, {raising}, {_NOTE.format(notes=source)} {_SETTLED}",
            (*change_values, *raise_values, now, write_id, *note_values, len(rises)),
        )
        change_id, applied, found = cursor.one()
        return Settled(applied, found, change_id)


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


def _change(changes: Sequence[InventoryChange]) -> tuple[str, str, tuple[object, ...]]:
    """Common table expressions to write in front, the UPDATE, and the parameters of both."""
    if len(changes) == 1:
        (one,) = changes
        return (
            "",
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
    wanted, values = _rows(
        _CHANGE_KINDS,
        [
            (one.inventory_id, one.delta, one.smallest, one.largest, one.step_size)
            for one in changes
        ],
    )
    return _HOLD.format(wanted=wanted), _CHANGE, values


def _applying(changes: Sequence[InventoryChange]) -> tuple[str, tuple[object, ...]]:
    """The common table expression ``applied``, one row for each inventory changed."""
    if not changes:
        return "applied AS (SELECT 1 LIMIT 0)", ()
    first, change, values = _change(changes)
    return f"{first}{', ' if first else ''}applied AS ({change} RETURNING 1)", values


def _raising(rises: Sequence[Rise], applied: int, now: datetime) -> tuple[str, tuple[object, ...]]:
    """The common table expression ``raised``, one row for each provider found."""
    if len(rises) == 1 and rises[0].raised:
        provider_id, root_id, _ = rises[0]
        return _RAISE_ONE, (now, provider_id, root_id, applied)
    rising, values = _rows(_RISE_KINDS, rises)
    return _RAISE.format(rising=rising), (*values, applied, now)
