"""Batches on MySQL and MariaDB: the driver writes all values into the statement it sends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from sqlalchemy import Connection

from placement_server.store.dialects.batches import (
    INVENTORY_VALUES,
    Batches,
    Insertion,
    InventoryUpdate,
    NewInventory,
    Value,
    chunks,
    stamp,
)

# Some 100 bytes a row, far below the smallest max_allowed_packet.
_ROWS: Final = 4000
_BY_KEY: Final = "FORCE INDEX (uniq_inventories0resource_provider_resource_class)"


class _QuotedValues(dict[Value, str]):
    """SQL literals by value, as the driver of a connection writes them."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._driver = connection.connection.dbapi_connection

    def __missing__(self, value: Value) -> str:
        assert self._driver is not None, "the connection is open"
        # the driver uses the whole statement as a format
        literal: str = self._driver.escape(value).replace("%", "%%")
        self[value] = literal
        return literal


class MysqlBatches(Batches):
    """Locks are taken in the order in which a statement walks the index it is forced to use."""

    family = "mysql"
    listed = math.inf
    mark = moment = "%s"
    unless_there = "IGNORE"
    # GROUP_CONCAT cuts what is longer than a setting of the server.
    comma_list = ""
    in_key_order = ("FORCE INDEX (PRIMARY)", "ORDER BY id")

    def many(self, values: Sequence[Value]) -> object:
        return list(values)

    def insert(
        self, connection: Connection, insertions: Sequence[Insertion], now: datetime
    ) -> None:
        for table, columns, rows in insertions:
            names = ", ".join(name for name, _ in columns)
            # the driver quotes value by value; most values of a large batch repeat
            quote = _QuotedValues(connection)
            for chunk in chunks(rows, _ROWS):
                values = ", ".join(
                    f"('{stamp(now)}', '{stamp(now)}', "
                    f"{', '.join([quote[value] for value in row])})"
                    for row in chunk
                )
                connection.exec_driver_sql(
                    f"INSERT INTO {table} (created_at, updated_at, {names}) VALUES {values}"
                )

    def void_changes(
        self, connection: Connection, ids: Sequence[int], write_id: int, now: datetime
    ) -> None:
        patience = connection.exec_driver_sql("SELECT @@innodb_lock_wait_timeout").scalar_one()
        connection.exec_driver_sql("SET SESSION innodb_lock_wait_timeout = 1")
        try:
            super().void_changes(connection, ids, write_id, now)
        finally:
            if not connection.invalidated:
                connection.exec_driver_sql(f"SET SESSION innodb_lock_wait_timeout = {patience}")

    def replace_inventories(
        self, connection: Connection, new_inventories: Sequence[NewInventory], now: datetime
    ) -> None:
        first = ", ".join(f"%s AS {name}" for name in NewInventory._fields)
        further = ", ".join(["%s"] * len(NewInventory._fields))
        changes = ", ".join(f"inventories.{name} = new.{name}" for name in INVENTORY_VALUES)
        for rows in chunks(new_inventories, _ROWS):
            source = " UNION ALL SELECT ".join([first, *[further] * (len(rows) - 1)])
            connection.exec_driver_sql(
                f"UPDATE (SELECT {source}) AS new STRAIGHT_JOIN inventories {_BY_KEY} "
                "ON resource_provider_id = provider_id AND resource_class_id = class_id "
                f"SET {changes}, updated_at = '{stamp(now)}'",
                tuple(value for row in rows for value in row),
            )

    def change_inventories(self, connection: Connection, changes: Sequence[InventoryUpdate]) -> int:
        if not changes:
            return 0
        deltas = " ".join(f"WHEN {change.inventory_id} THEN {change.delta}" for change in changes)
        conditions = []
        for change in changes:
            condition = (
                f"resource_provider_id = {change.provider_id} "
                f"AND resource_class_id = {change.class_id} AND id = {change.inventory_id}"
            )
            if change.delta > 0:
                condition += f" AND used + {change.delta} <= capacity"
            if change.step_size:
                condition += (
                    f" AND min_unit <= {change.smallest} AND max_unit >= {change.largest}"
                    f" AND step_size = {change.step_size}"
                )
            conditions.append(f"({condition})")
        cursor = connection.exec_driver_sql(
            f"UPDATE inventories {_BY_KEY} SET used = used + CASE id {deltas} END "
            f"WHERE {' OR '.join(conditions)} "
            "ORDER BY resource_provider_id, resource_class_id"
        )
        return int(cursor.rowcount)
