"""Statements over many rows at once, in the way that each database does best.

A batch is one round trip: executemany inside the process on SQLite, arrays through ``unnest`` on
PostgreSQL, one multi-row statement on MySQL and MariaDB.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, TypeVar

from sqlalchemy import Connection, Dialect

_Item = TypeVar("_Item")
_Value = int | str | float | None
_Family = Literal["sqlite", "postgresql", "mysql"]

# Parameters in one statement: SQLite takes 32,766, PostgreSQL 65,535.
CHUNK: Final = 8000

# Some 100 bytes a row, far below the smallest max_allowed_packet.
_MYSQL_ROWS: Final = 4000


def chunks(items: Sequence[_Item], size: int = CHUNK) -> Iterator[Sequence[_Item]]:
    """``items`` in pieces that fit into one IN list."""
    if len(items) <= size:
        if items:
            yield items
        return
    for start in range(0, len(items), size):
        yield items[start : start + size]


@dataclass(frozen=True, slots=True)
class InventoryChange:
    """What one claim does to one inventory.

    ``delta`` is added to the use. ``min_unit`` may be at most ``smallest`` and ``max_unit`` at
    least ``largest``, the extremes of the new amounts; ``step_size`` is the one that they were
    checked against. Where nothing new is taken the defaults let everything pass.
    """

    inventory_id: int
    provider_id: int
    class_id: int
    delta: int
    smallest: int = 2147483647
    largest: int = -2147483648
    step_size: int = 0


class _Quoted(dict[_Value, str]):
    """SQL literals by value, as the driver of a MySQL connection writes them."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._driver = connection.connection.dbapi_connection

    def __missing__(self, value: _Value) -> str:
        assert self._driver is not None, "the connection is open"
        # the driver takes the whole statement for a format
        literal: str = self._driver.escape(value).replace("%", "%%")
        self[value] = literal
        return literal


class Batches:
    """Batched statements in the words of one database."""

    __slots__ = ("_mark", "family")

    def __init__(self, dialect: Dialect) -> None:
        name = dialect.name
        self.family: Final[_Family] = (
            "sqlite" if name == "sqlite" else "postgresql" if name == "postgresql" else "mysql"
        )
        self._mark = "?" if name == "sqlite" else "%s"

    def insert(
        self,
        connection: Connection,
        table: str,
        columns: Sequence[tuple[str, str]],
        rows: Sequence[tuple[_Value, ...]],
        now: datetime,
    ) -> None:
        """Insert ``rows``; ``columns`` are pairs of name and PostgreSQL type."""
        if not rows:
            return
        names = ", ".join(name for name, _ in columns)
        if self.family == "postgresql":
            arrays = ", ".join(f"%s::{kind}[]" for _, kind in columns)
            connection.exec_driver_sql(
                f"INSERT INTO {table} (created_at, updated_at, {names}) "
                f"SELECT %s::timestamp, %s::timestamp, * FROM unnest({arrays})",
                (now, now, *(list(column) for column in zip(*rows, strict=True))),
            )
            return
        stamp = _stamp(now)
        head = f"INSERT INTO {table} (created_at, updated_at, {names}) VALUES "
        if self.family == "sqlite":
            marks = ", ".join("?" for _ in columns)
            connection.exec_driver_sql(f"{head}('{stamp}', '{stamp}', {marks})", list(rows))
            return
        # the driver quotes value by value; most values of a large batch repeat
        quote = _Quoted(connection)
        for some in chunks(rows, _MYSQL_ROWS):
            values = ", ".join(
                f"('{stamp}', '{stamp}', {', '.join([quote[value] for value in row])})"
                for row in some
            )
            connection.exec_driver_sql(head + values)

    def change_inventories(self, connection: Connection, changes: Sequence[InventoryChange]) -> int:
        """Apply ``changes``, each only where it still fits; returns how many did.

        Rows are locked in the order of ``changes``, which must be (provider id, class id).
        """
        if not changes:
            return 0
        if self.family == "mysql":
            return _change_inventories_in_one(connection, changes)
        mark = self._mark
        cursor = connection.exec_driver_sql(
            f"UPDATE inventories SET used = used + {mark} WHERE id = {mark} "
            f"AND ({mark} <= 0 OR used + {mark} <= capacity) "
            f"AND min_unit <= {mark} AND max_unit >= {mark} AND ({mark} = 0 OR step_size = {mark})",
            [
                (
                    change.delta,
                    change.inventory_id,
                    change.delta,
                    change.delta,
                    change.smallest,
                    change.largest,
                    change.step_size,
                    change.step_size,
                )
                for change in changes
            ],
        )
        return int(cursor.rowcount)

    def bump_generations(
        self,
        connection: Connection,
        provider_ids: Sequence[int],
        bumped: Collection[int],
        root_ids: Collection[int],
        now: datetime,
    ) -> int:
        """Lock the providers in the order of their ids and raise the generation of ``bumped``.

        Only providers that still are in one of the trees ``root_ids`` count; returns how many.
        """
        if self.family == "postgresql":
            # an UPDATE of many rows promises no order of its locks, a sorted FOR UPDATE does
            roots = sorted(root_ids)
            some = sorted(bumped)
            cursor = connection.exec_driver_sql(
                "WITH held AS MATERIALIZED (SELECT id AS held_id FROM resource_providers "
                "WHERE id = ANY(%s::int[]) ORDER BY id FOR NO KEY UPDATE) "
                "UPDATE resource_providers "
                "SET generation = generation + (id = ANY(%s::int[]))::int, "
                "updated_at = CASE WHEN id = ANY(%s::int[]) THEN %s::timestamp ELSE updated_at END "
                "FROM held WHERE id = held_id AND root_provider_id = ANY(%s::int[])",
                (sorted(provider_ids), some, some, now, roots),
            )
            return int(cursor.rowcount)
        stamp = _stamp(now)
        if bumped:
            some_ids = ", ".join(map(str, sorted(bumped)))
            change = (
                f"generation = CASE WHEN id IN ({some_ids}) THEN generation + 1 "
                "ELSE generation END, "
                f"updated_at = CASE WHEN id IN ({some_ids}) THEN '{stamp}' ELSE updated_at END"
            )
        else:
            change = "generation = generation"
        order = ("FORCE INDEX (PRIMARY)", "ORDER BY id") if self.family == "mysql" else ("", "")
        statement = (
            f"UPDATE resource_providers {order[0]} SET {change} "
            f"WHERE id IN ({', '.join(map(str, sorted(provider_ids)))}) "
            f"AND root_provider_id IN ({', '.join(map(str, sorted(root_ids)))}) {order[1]}"
        )
        return int(connection.exec_driver_sql(statement).rowcount)

    def append_changes(
        self, connection: Connection, rows: Sequence[tuple[int, int]], write_id: int, now: datetime
    ) -> int:
        """Insert rows (root id, kind) into ``changes``; returns the id of one of them."""
        if self.family == "postgresql":
            cursor = connection.exec_driver_sql(
                "INSERT INTO changes (created_at, write_id, root_provider_id, kind) "
                "SELECT %s::timestamp, %s::bigint, * FROM unnest(%s::int[], %s::smallint[]) "
                "RETURNING id",
                (now, write_id, [root for root, _ in rows], [kind for _, kind in rows]),
            )
            return int(cursor.all()[0][0])
        stamp = _stamp(now)
        values = ", ".join(f"('{stamp}', {root}, {kind}, {write_id})" for root, kind in rows)
        cursor = connection.exec_driver_sql(
            f"INSERT INTO changes (created_at, root_provider_id, kind, write_id) VALUES {values}"
        )
        return int(cursor.lastrowid)


def _stamp(now: datetime) -> str:
    """A time as SQLAlchemy stores it on SQLite; MySQL reads it too."""
    return now.strftime("%Y-%m-%d %H:%M:%S.000000")


def _change_inventories_in_one(connection: Connection, changes: Sequence[InventoryChange]) -> int:
    """One UPDATE for MySQL, whose scan of the forced index takes the rows in the key's order."""
    deltas = " ".join(f"WHEN {change.inventory_id} THEN {change.delta}" for change in changes)
    wanted = []
    for change in changes:
        test = (
            f"resource_provider_id = {change.provider_id} "
            f"AND resource_class_id = {change.class_id} AND id = {change.inventory_id}"
        )
        if change.delta > 0:
            test += f" AND used + {change.delta} <= capacity"
        if change.step_size:
            test += (
                f" AND min_unit <= {change.smallest} AND max_unit >= {change.largest}"
                f" AND step_size = {change.step_size}"
            )
        wanted.append(f"({test})")
    cursor = connection.exec_driver_sql(
        "UPDATE inventories FORCE INDEX (uniq_inventories0resource_provider_resource_class) "
        f"SET used = used + CASE id {deltas} END WHERE {' OR '.join(wanted)} "
        "ORDER BY resource_provider_id, resource_class_id"
    )
    return int(cursor.rowcount)
