"""Batches on SQLite, where a statement costs little and no other writer waits."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection

from placement_server.store.dialects.batches import (
    Batches,
    Insertion,
    InventoryUpdate,
    Value,
    stamp,
    update_values,
)


class SqliteBatches(Batches):
    """Batches of the only writer, which need no order of locks."""

    family = "sqlite"
    mark = "?"
    moment = "?"

    def among(self, values: Sequence[Value]) -> tuple[str, tuple[object, ...]]:
        return f"IN ({', '.join('?' * len(values))})", tuple(values)

    def insert(
        self, connection: Connection, insertions: Sequence[Insertion], now: datetime
    ) -> None:
        for table, columns, rows in insertions:
            if not rows:
                continue
            names = ", ".join(name for name, _ in columns)
            marks = ", ".join("?" * len(columns))
            connection.exec_driver_sql(
                f"INSERT INTO {table} (created_at, updated_at, {names}) "
                f"VALUES ('{stamp(now)}', '{stamp(now)}', {marks})",
                list(rows),
            )

    def change_inventories(self, connection: Connection, changes: Sequence[InventoryUpdate]) -> int:
        if not changes:
            return 0
        cursor = connection.exec_driver_sql(
            "UPDATE inventories SET used = used + ? WHERE id = ? "
            "AND (? <= 0 OR used + ? <= capacity) "
            "AND min_unit <= ? AND max_unit >= ? AND (? = 0 OR step_size = ?)",
            [update_values(change) for change in changes],
        )
        return int(cursor.rowcount)
