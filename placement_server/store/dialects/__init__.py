"""Statements over many rows at once, as each database executes them best.

A batch is one round trip: executemany inside the process on SQLite, lists of rows on PostgreSQL,
one multi-row statement on MySQL and MariaDB.
"""

from __future__ import annotations

from sqlalchemy import Dialect

from placement_server.store.dialects.batches import (
    CHUNK,
    Batches,
    ChangeRecord,
    Insertion,
    InventoryChange,
    NewInventory,
    Rise,
    Settled,
    Value,
    chunks,
)
from placement_server.store.dialects.mysql import MysqlBatches
from placement_server.store.dialects.postgresql import PostgresqlBatches
from placement_server.store.dialects.sqlite import SqliteBatches

__all__ = [
    "CHUNK",
    "Batches",
    "ChangeRecord",
    "Insertion",
    "InventoryChange",
    "NewInventory",
    "Rise",
    "Settled",
    "Value",
    "batches_of",
    "chunks",
]

_SQLITE = SqliteBatches()
_POSTGRESQL = PostgresqlBatches()
_MYSQL = MysqlBatches()


def batches_of(dialect: Dialect) -> Batches:
    """Return the batches for one kind of database."""
    if dialect.name == "sqlite":
        return _SQLITE
    return _POSTGRESQL if dialect.name == "postgresql" else _MYSQL
