"""Batches on PostgreSQL: few and constant statements, which the server prepares once.

A handful of rows is written as a list of values, more as arrays through `unnest`: short lists
cost less to send, and long ones would be a new statement for every length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import chain
from typing import Final, TypeAlias

from sqlalchemy import Connection

from placement_server.store.dialects import plain
from placement_server.store.dialects.batches import (
    INSERT_INVENTORIES,
    INVENTORY_VALUES,
    Batches,
    ChangeRecord,
    Insertion,
    InventoryUpdate,
    NewInventory,
    Rise,
    Settlement,
    Value,
)

_LISTED: Final = 8

_APPEND: Final = (
    "INSERT INTO changes (created_at, write_id, {columns}) "
    "SELECT %s::timestamp, %s::bigint, * FROM {records}"
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
# Only if all inventories were changed: so no provider is locked before them.
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
# Likewise a change record gets its id when all locks are held: a follower of the feed waits for a
# missing id no longer than a commit may take.
_RECORD: Final = "noted AS (" + _APPEND + " WHERE (SELECT count(*) FROM raised) = %s RETURNING id)"
_INVENTORIES: Final = (
    " WITH new (provider_id, class_id) AS (SELECT * FROM {new}) "
    "SELECT new.*, %s::timestamp, %s::timestamp, COALESCE((SELECT SUM(used) FROM allocations "
    "WHERE resource_provider_id = provider_id AND resource_class_id = class_id), 0) FROM new"
)
_REPLACE: Final = (
    f"UPDATE inventories SET ({', '.join(INVENTORY_VALUES)}, updated_at) = "
    f"({', '.join(f'new.{name}' for name in INVENTORY_VALUES)}, %s::timestamp) "
    "FROM new WHERE resource_provider_id = provider_id AND resource_class_id = class_id"
)
_SETTLED: Final = (
    "SELECT (SELECT max(id) FROM noted), (SELECT count(*) FROM applied), "
    "(SELECT count(*) FROM raised)"
)
_RISE_KINDS: Final = ("int", "int", "boolean")
_CHANGE_KINDS: Final = ("int", "bigint", "int", "int", "int")
_INVENTORY_KINDS: Final = (*("int",) * 7, "double precision", "bigint")

_Form: TypeAlias = tuple[str, tuple[tuple[str, str], ...], int | None]
"""A table, its columns, and how many rows are listed for it."""


class PostgresqlBatches(Batches):
    """Several statements become one where nothing depends on the order among them."""

    family = "postgresql"
    mark = "%s"
    comma_list = "string_agg({}, ',')"
    moment = "%s::timestamp"
    # the planner expects an array to be short, and uses the index
    few = "= ANY(ARRAY({}))"

    def among(self, values: Sequence[Value]) -> tuple[str, tuple[object, ...]]:
        if len(values) == 1:
            return "= %s", (values[0],)
        return "= ANY(%s)", (_array(values),)

    def packed(self, table: str, columns: Mapping[str, type], group: str) -> str | None:
        # in groups, as one value takes a gigabyte at most
        row = " || ".join([f"{kind.__name__}8send({name})" for name, kind in columns.items()])
        return f"SELECT string_agg({row}, '') FROM {table} GROUP BY {group}"

    def many(self, values: Sequence[Value]) -> object:
        return _array(values)

    def join_to_few(self, table: str, condition: str) -> str:
        # The planner does not know how few they are and would scan the whole table instead; an
        # OFFSET makes it look up each of them.
        return f"CROSS JOIN LATERAL (SELECT * FROM {table} WHERE {condition} OFFSET 0) AS {table}"

    def insert(
        self, connection: Connection, insertions: Sequence[Insertion], now: datetime
    ) -> None:
        forms: list[_Form] = []
        parameters: list[object] = []
        for table, columns, rows in insertions:
            if rows:
                forms.append((table, columns, _listed_count(rows)))
                parameters += (now, now, *_values(rows))
        if forms:
            plain.count(connection, _insertion(tuple(forms)), tuple(parameters))

    def change_inventories(self, connection: Connection, changes: Sequence[InventoryUpdate]) -> int:
        if not changes:
            return 0
        first, change, parameters = _change(changes)
        head = f"WITH {first} " if first else ""
        return plain.count(connection, head + change, parameters)

    def insert_inventories(
        self, connection: Connection, new_inventories: Sequence[NewInventory], now: datetime
    ) -> None:
        # one row of text for each would take four times as long
        if new_inventories:
            source, values = _rows(_INVENTORY_KINDS, new_inventories)
            statement = INSERT_INVENTORIES + _INVENTORIES.format(new=source)
            plain.count(connection, statement, (*values, now, now))

    def replace_inventories(
        self, connection: Connection, new_inventories: Sequence[NewInventory], now: datetime
    ) -> None:
        source, values = _rows(_INVENTORY_KINDS, new_inventories)
        new = f"new ({', '.join(NewInventory._fields)}) AS (SELECT * FROM {source})"
        plain.count(connection, f"WITH {new} {_REPLACE}", (*values, now))

    def append_changes(
        self, connection: Connection, rows: Sequence[ChangeRecord], write_id: int, now: datetime
    ) -> int:
        columns, source, values = _record_rows(rows)
        appended_rows = plain.rows(
            connection,
            _APPEND.format(columns=columns, records=source) + " RETURNING id",
            (now, write_id, *values),
        )
        return int(appended_rows[0][0])

    def void_changes(
        self, connection: Connection, ids: Sequence[int], write_id: int, now: datetime
    ) -> None:
        connection.exec_driver_sql("SET LOCAL lock_timeout = '1s'")
        connection.exec_driver_sql(
            "INSERT INTO changes (id, created_at, root_provider_id, kind, write_id) "
            "SELECT unnest(%s::bigint[]), %s::timestamp, 0, 3, %s::bigint ON CONFLICT DO NOTHING",
            (list(ids), now, write_id),
        )

    def settle(
        self,
        connection: Connection,
        changes: Sequence[InventoryUpdate],
        rises: Sequence[Rise],
        records: Sequence[ChangeRecord],
        write_id: int,
        now: datetime,
    ) -> Settlement:
        applying, change_values = _applying(changes)
        raising, raise_values = _raising(rises, len(changes), now)
        columns, source, record_values = _record_rows(records)
        recording = _RECORD.format(columns=columns, records=source)
        ((change_id, applied_count, raised_count),) = plain.rows(
            connection,
            f"WITH {applying}, {raising}, {recording} {_SETTLED}",
            (*change_values, *raise_values, now, write_id, *record_values, len(rises)),
        )
        return Settlement(applied_count, raised_count, change_id)


def _rows(
    kinds: tuple[str, ...], rows: Sequence[tuple[object, ...]]
) -> tuple[str, tuple[object, ...]]:
    """Return a FROM item with these rows, and its parameters."""
    return _source(kinds, _listed_count(rows)), _values(rows)


def _listed_count(rows: Sequence[object]) -> int | None:
    """Return how many rows a list has; None: arrays take its place."""
    return len(rows) if len(rows) <= _LISTED else None


def _values(rows: Sequence[tuple[object, ...]]) -> tuple[object, ...]:
    """Return the parameters of a FROM item with these rows."""
    if len(rows) > _LISTED:
        return tuple(_array(column) for column in zip(*rows, strict=True))
    return tuple(chain.from_iterable(rows))


@lru_cache(maxsize=256)
def _insertion(forms: tuple[_Form, ...]) -> str:
    """Return the statement that inserts rows into some tables."""
    texts = []
    for table, columns, count in forms:
        names, kinds = zip(*columns, strict=True)
        texts.append(
            f"INSERT INTO {table} (created_at, updated_at, {', '.join(names)}) "
            f"SELECT %s::timestamp, %s::timestamp, * FROM {_source(kinds, count)}"
        )
    *others, last = texts
    first = [f"other_{number} AS ({text})" for number, text in enumerate(others)]
    head = f"WITH {', '.join(first)} " if first else ""
    return head + last


@lru_cache(maxsize=256)
def _source(kinds: tuple[str, ...], count: int | None) -> str:
    """Return a FROM item with a list of so many rows, or with arrays where None."""
    if count is None:
        return f"unnest({', '.join(f'%s::{kind}[]' for kind in kinds)}) AS new_rows"
    row = f"({', '.join(f'%s::{kind}' for kind in kinds)})"
    return f"(VALUES {', '.join([row] * count)}) AS new_rows"


def _array(values: Sequence[object]) -> str:
    """Return an array as a literal. The driver takes five times as long to dump a list."""
    kinds = {*map(type, values)}
    if kinds == {str}:
        elements = '","'.join([value for value in values if isinstance(value, str)])
        if "\\" not in elements and elements.count('"') == 2 * (len(values) - 1):
            return f'{{"{elements}"}}'
    element = str if kinds == {int} else _element
    return f"{{{','.join(map(element, values))}}}"


def _element(value: object) -> str:
    if isinstance(value, str):
        escaped_text = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped_text}"'
    return "NULL" if value is None else str(value)


def _record_rows(records: Sequence[ChangeRecord]) -> tuple[str, str, tuple[object, ...]]:
    """Return the columns of change records, a FROM item with them, and its parameters.

    Claims end no tree, and do not send a column that is always empty.
    """
    if any(record.root_uuid for record in records):
        source, values = _rows(("int", "smallint", "text"), records)
        return "root_provider_id, kind, root_provider_uuid", source, values
    source, values = _rows(("int", "smallint"), [record[:2] for record in records])
    return "root_provider_id, kind", source, values


def _change(changes: Sequence[InventoryUpdate]) -> tuple[str, str, tuple[object, ...]]:
    """Return common table expressions for the front, the UPDATE, and the parameters of both."""
    if len(changes) == 1:
        number, _, _, delta, smallest, largest, step_size = changes[0]
        bounds = (smallest, largest, step_size, step_size)
        return "", _CHANGE_ONE, (delta, number, delta, delta, *bounds)
    source, values = _rows(_CHANGE_KINDS, [(change[0], *change[3:]) for change in changes])
    return _HOLD.format(wanted=source), _CHANGE, values


def _applying(changes: Sequence[InventoryUpdate]) -> tuple[str, tuple[object, ...]]:
    """Return the common table expression `applied`: one row for each inventory changed."""
    if not changes:
        return "applied AS (SELECT 1 LIMIT 0)", ()
    first, change, values = _change(changes)
    return f"{first}{', ' if first else ''}applied AS ({change} RETURNING 1)", values


def _raising(
    rises: Sequence[Rise], applied_count: int, now: datetime
) -> tuple[str, tuple[object, ...]]:
    """Return the common table expression `raised`: one row for each provider found."""
    if len(rises) == 1 and rises[0].is_raised:
        provider_id, root_id, _ = rises[0]
        return _RAISE_ONE, (now, provider_id, root_id, applied_count)
    rising, values = _rows(_RISE_KINDS, rises)
    return _RAISE.format(rising=rising), (*values, applied_count, now)
