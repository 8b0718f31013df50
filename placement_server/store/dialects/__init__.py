"""Statements over many rows at once, as each database executes them best.

A batch is one round trip: executemany inside the process on SQLite, lists of rows on PostgreSQL,
one multi-row statement on MySQL and MariaDB.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from placement_server.store.dialects.batches import Batches
from placement_server.store.dialects.mysql import MysqlBatches
from placement_server.store.dialects.postgresql import PostgresqlBatches

BATCHES: Final[Mapping[str, Batches]] = {
    "sqlite": Batches(),
    "postgresql": PostgresqlBatches(),
    "mysql": MysqlBatches(),
    "mariadb": MysqlBatches(),
}
"""The batches for each kind of database, by the name that SQLAlchemy has for it."""
