"""Statements over many rows: those of SQLite, from which the other databases' differ."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, Final, Literal, NamedTuple, TypeVar

from sqlalchemy import (
    ARRAY,
    JSON,
    Boolean,
    ColumnElement,
    Connection,
    String,
    any_,
    bindparam,
    func,
    select,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

_Item = TypeVar("_Item")
INSERT_INVENTORIES: Final = (
    "INSERT INTO inventories (resource_provider_id, resource_class_id, total, reserved, min_unit, "
    "max_unit, step_size, allocation_ratio, capacity, created_at, updated_at, used) "
)
_CHANGE_INVENTORY: Final = (
    "UPDATE inventories SET used = used + :delta WHERE id = :inventory_id "
    "AND (:delta <= 0 OR used + :delta <= capacity) AND min_unit <= :smallest "
    "AND max_unit >= :largest AND (:step_size = 0 OR step_size = :step_size)"
)
# SQLite takes 500 selects in a union.
_UNITED: Final = 200
Value = int | str | float | None

# Parameters in one list: SQLite takes 32,766 in a statement, PostgreSQL 65,535.
CHUNK: Final = 8000


def chunks(items: Sequence[_Item], size: int = CHUNK) -> Iterator[Sequence[_Item]]:
    """Divide `items` into pieces that fit into one IN list."""
    if len(items) <= size:
        if items:
            yield items
        return
    for start in range(0, len(items), size):
        yield items[start : start + size]


class _Among(FunctionElement[bool]):
    name = "among"
    type = Boolean()
    inherit_cache = True

    def self_group(self, against: object = None) -> _Among:
        del against
        # SQLAlchemy would compare it with 1 where there are no booleans: no index serves that.
        return self


def among(column: ColumnElement[Any], parameter: str) -> ColumnElement[bool]:
    """Return the condition that the value of a column is among those of a parameter.

    In a list of many values each is a parameter of its own to SQLAlchemy and to the driver, and
    SQLite keeps 128 of the texts, of a megabyte each. PostgreSQL takes an array instead and SQLite
    a document: one parameter, and one statement for any number of values.

    :param parameter: the name of the parameter, which takes a list.
    """
    return _Among(column, bindparam(parameter, expanding=True, type_=column.type))


@compiles(_Among)
def _in_a_list(element: _Among, compiler: SQLCompiler, **arguments: Any) -> str:
    column, values = element.clauses
    return compiler.process(column.in_(values), **arguments)


@compiles(_Among, "sqlite")
def _in_a_document(element: _Among, compiler: SQLCompiler, **arguments: Any) -> str:
    column, values = element.clauses
    items = func.json_each(bindparam(values.key, type_=JSON)).table_valued("value")
    return compiler.process(column.in_(select(items.c.value)), **arguments)


@compiles(_Among, "postgresql")
def _in_an_array(element: _Among, compiler: SQLCompiler, **arguments: Any) -> str:
    column, values = element.clauses
    # Without the length of the column, to which the cast would cut longer values.
    item_type = String() if isinstance(column.type, String) else column.type
    array = bindparam(values.key, type_=ARRAY(item_type, dimensions=1))
    return compiler.process(column == any_(array), **arguments)


class InventoryUpdate(NamedTuple):
    """The change of one inventory by one claim; the defaults of the bounds admit everything.

    :ivar delta: is added to the use.
    :ivar smallest: the smallest new amount; the inventory's `min_unit` may be at most this.
    :ivar largest: the largest new amount; the inventory's `max_unit` must be at least this.
    :ivar step_size: the step size that the new amounts were checked against; 0 if there are none.
    """

    inventory_id: int
    provider_id: int
    class_id: int
    delta: int
    smallest: int = 2147483647
    largest: int = -2147483648
    step_size: int = 0


class NewInventory(NamedTuple):
    """An inventory as it is to be written; what is used of it is not."""

    provider_id: int
    class_id: int
    total: int
    reserved: int
    min_unit: int
    max_unit: int
    step_size: int
    allocation_ratio: float
    capacity: int


INVENTORY_VALUES: Final = NewInventory._fields[2:]


class Insertion(NamedTuple):
    """Rows for one table; `columns` are pairs of name and PostgreSQL type."""

    table: str
    columns: tuple[tuple[str, str], ...]
    rows: Sequence[tuple[Value, ...]]


class Rise(NamedTuple):
    """A provider to lock; it only counts as found while it is in the tree of `root_id`.

    Or in another tree of the request, on some databases: that tree has a change record as well.
    """

    provider_id: int
    root_id: int
    is_raised: bool
    """Whether its generation rises."""


class ChangeRecord(NamedTuple):
    """A change record to append."""

    root_id: int
    kind: int
    root_uuid: str | None = None
    """The uuid of the root, where this write ends the tree; nothing else may name it later."""


class Settlement(NamedTuple):
    """Numbers of inventories changed and providers found, and the id of a change record, if any."""

    changed_inventories: int
    found_providers: int
    change_id: int | None


class Batches:
    """Batched statements of SQLite, whose one writer needs no order of locks."""

    family: ClassVar[Literal["sqlite", "postgresql", "mysql"]] = "sqlite"
    in_key_order: ClassVar[tuple[str, str]] = ("", "")
    """Clauses of an UPDATE, behind its table and at its end, to lock rows by their primary key."""
    listed: ClassVar[float] = 8
    """Values that a condition lists at most; more are one parameter, and one text."""
    mark: ClassVar[str] = "?"
    """The placeholder of a parameter."""
    moment: ClassVar[str] = "?"
    """That of a time."""
    unless_there: ClassVar[str] = "OR IGNORE"
    """What makes INSERT leave out rows with keys that are there."""
    comma_list: ClassVar[str] = "group_concat({})"
    """An aggregate function that makes one text of any number of them; empty: there is none."""
    few: ClassVar[str] = "IN ({})"
    """A condition behind a column, true if it is among the few results of a subquery."""

    def among(self, values: Sequence[Value]) -> tuple[str, tuple[object, ...]]:
        """Return a condition behind a column, true for any of `values`, and its parameters."""
        if len(values) > self.listed:
            return "IN (SELECT value FROM json_each(?))", (json.dumps(values),)
        return f"IN ({', '.join([self.mark] * len(values))})", tuple(values)

    def packed(self, table: str, columns: Mapping[str, type], group: str) -> str | None:
        """Return a statement for the rows of a whole table as bytes; None: there is none.

        All its values together have eight bytes for each number, the most significant first, row
        after row in any order.

        :param columns: each `int` or `float`, and never NULL.
        :param group: a column, for each value of which there is one value of bytes.
        """
        del table, columns, group
        return None

    def many(self, values: Sequence[Value]) -> object:
        """Return the parameter for a list of values in a condition of `among`."""
        return json.dumps(values)

    def join_to_few(self, table: str, condition: str) -> str:
        """Return a join with `table`, to write behind a table of which few rows are read."""
        return f"JOIN {table} ON {condition}"

    def insert(
        self, connection: Connection, insertions: Sequence[Insertion], now: datetime
    ) -> None:
        """Insert all rows, created and updated `now`."""
        for table, columns, rows in insertions:
            if not rows:
                continue
            names = ", ".join(name for name, _ in columns)
            marks = ", ".join(self.mark * len(columns))
            connection.exec_driver_sql(
                f"INSERT INTO {table} (created_at, updated_at, {names}) "
                f"VALUES ('{stamp(now)}', '{stamp(now)}', {marks})",
                list(rows),
            )

    def change_inventories(self, connection: Connection, changes: Sequence[InventoryUpdate]) -> int:
        """Apply `changes`, each only where it still fits.

        Rows are locked in the order of `changes`, which must be (provider id, class id).

        :returns: the number of changes that were applied.
        """
        if not changes:
            return 0
        parameters = [change._asdict() for change in changes]
        return int(connection.exec_driver_sql(_CHANGE_INVENTORY, parameters).rowcount)

    def insert_inventories(
        self, connection: Connection, new_inventories: Sequence[NewInventory], now: datetime
    ) -> None:
        """Insert inventories, in use by the sum of the allocations that the statement sees.

        A claim needs an inventory, so while there was none the sum could only fall; the caller
        has locked the provider, which prevents that (`allocations` describes how). It is an
        INSERT with SELECT: within VALUES MySQL would lock the allocations that it sums up.
        """
        select = (
            f"SELECT {', '.join([self.mark] * len(NewInventory._fields))}, {self.moment}, "
            f"{self.moment}, COALESCE(SUM(used), 0) FROM allocations "
            f"WHERE resource_provider_id = {self.mark} AND resource_class_id = {self.mark}"
        )
        times = (stamp(now), stamp(now))
        for rows in chunks(new_inventories, _UNITED):
            connection.exec_driver_sql(
                INSERT_INVENTORIES + " UNION ALL ".join([select] * len(rows)),
                tuple(
                    value for row in rows for value in (*row, *times, row.provider_id, row.class_id)
                ),
            )

    def replace_inventories(
        self, connection: Connection, new_inventories: Sequence[NewInventory], now: datetime
    ) -> None:
        """Give inventories that are there, and locked, all their other values."""
        values = ", ".join(f"{name} = ?" for name in INVENTORY_VALUES)
        connection.exec_driver_sql(
            f"UPDATE inventories SET {values}, updated_at = '{stamp(now)}' "
            "WHERE resource_provider_id = ? AND resource_class_id = ?",
            [(*row[2:], row.provider_id, row.class_id) for row in new_inventories],
        )

    def append_changes(
        self, connection: Connection, rows: Sequence[ChangeRecord], write_id: int, now: datetime
    ) -> int:
        """Insert change records, and return the id of one of them."""
        values = ", ".join(
            f"('{stamp(now)}', {row.root_id}, {row.kind}, {write_id}, "
            f"{self.mark if row.root_uuid else 'NULL'})"
            for row in rows
        )
        cursor = connection.exec_driver_sql(
            "INSERT INTO changes (created_at, root_provider_id, kind, write_id, "
            f"root_provider_uuid) VALUES {values}",
            tuple(row.root_uuid for row in rows if row.root_uuid),
        )
        return int(cursor.lastrowid)

    def void_changes(
        self, connection: Connection, ids: Sequence[int], write_id: int, now: datetime
    ) -> None:
        """Insert VOID change records with these ids, where there is no record with the id.

        It waits only a moment for the transaction that holds an id; then the database reports that
        a lock was not free in time.
        """
        values = ", ".join(f"({number}, '{stamp(now)}', 0, 3, {write_id})" for number in ids)
        connection.exec_driver_sql(
            f"INSERT {self.unless_there} INTO changes "
            f"(id, created_at, root_provider_id, kind, write_id) VALUES {values}"
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
        """Change inventories, then raise generations, then append the change records.

        It makes as few round trips as the database allows: from the first of them to the commit
        others wait. Providers are locked in the order of their ids. When a step did not find all
        rows to change, the next is left out, and the caller rolls back.
        """
        applied_count = self.change_inventories(connection, changes)
        if applied_count != len(changes):
            return Settlement(applied_count, 0, None)
        raised_count = self._raise_generations(connection, rises, now)
        if raised_count != len(rises):
            return Settlement(applied_count, raised_count, None)
        return Settlement(
            applied_count, raised_count, self.append_changes(connection, records, write_id, now)
        )

    def _raise_generations(
        self, connection: Connection, rises: Sequence[Rise], now: datetime
    ) -> int:
        change = "generation = generation"
        raised_ids = ", ".join(str(rise.provider_id) for rise in rises if rise.is_raised)
        if raised_ids:
            change = (
                f"generation = CASE WHEN id IN ({raised_ids}) THEN generation + 1 ELSE generation "
                f"END, updated_at = CASE WHEN id IN ({raised_ids}) THEN '{stamp(now)}' ELSE "
                "updated_at END"
            )
        hint, order = self.in_key_order
        ids = ", ".join(str(rise.provider_id) for rise in rises)
        roots = ", ".join(map(str, sorted({rise.root_id for rise in rises})))
        cursor = connection.exec_driver_sql(
            f"UPDATE resource_providers {hint} SET {change} "
            f"WHERE id IN ({ids}) AND root_provider_id IN ({roots}) {order}"
        )
        return int(cursor.rowcount)


@functools.lru_cache(maxsize=8)
def stamp(now: datetime) -> str:
    """Format a time as SQLAlchemy stores it on SQLite; MySQL reads it too."""
    return now.strftime("%Y-%m-%d %H:%M:%S.000000")
