"""What all databases can do with many rows; how they do it is in the modules beside this one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Final, Literal, NamedTuple, TypeVar

from sqlalchemy import Connection

_Item = TypeVar("_Item")
Value = int | str | float | None

# Parameters in one list: SQLite takes 32,766 in a statement, PostgreSQL 65,535.
CHUNK: Final = 8000


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


class Insertion(NamedTuple):
    """Rows for one table; ``columns`` are pairs of name and PostgreSQL type."""

    table: str
    columns: Sequence[tuple[str, str]]
    rows: Sequence[tuple[Value, ...]]


class Batches(ABC):
    """Batched statements in the words of one database."""

    family: ClassVar[Literal["sqlite", "postgresql", "mysql"]]
    in_key_order: ClassVar[tuple[str, str]] = ("", "")
    """What an UPDATE says behind its table and at its end to lock rows by their primary key."""

    @abstractmethod
    def among(self, values: Sequence[str]) -> tuple[str, tuple[object, ...]]:
        """A condition to write behind a column, true for any of ``values``, and its parameters."""

    @abstractmethod
    def insert(
        self, connection: Connection, insertions: Sequence[Insertion], now: datetime
    ) -> None:
        """Insert all rows, created and updated ``now``."""

    @abstractmethod
    def change_inventories(self, connection: Connection, changes: Sequence[InventoryChange]) -> int:
        """Apply ``changes``, each only where it still fits; returns how many did.

        Rows are locked in the order of ``changes``, which must be (provider id, class id).
        """

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
        if bumped:
            some_ids = ", ".join(map(str, sorted(bumped)))
            change = (
                f"generation = CASE WHEN id IN ({some_ids}) THEN generation + 1 "
                "ELSE generation END, updated_at = "
                f"CASE WHEN id IN ({some_ids}) THEN '{stamp(now)}' ELSE updated_at END"
            )
        else:
            change = "generation = generation"
        hint, order = self.in_key_order
        cursor = connection.exec_driver_sql(
            f"UPDATE resource_providers {hint} SET {change} "
            f"WHERE id IN ({', '.join(map(str, sorted(provider_ids)))}) "
            f"AND root_provider_id IN ({', '.join(map(str, sorted(root_ids)))}) {order}"
        )
        return int(cursor.rowcount)

    def append_changes(
        self, connection: Connection, rows: Sequence[tuple[int, int]], write_id: int, now: datetime
    ) -> int:
        """Insert rows (root id, kind) into ``changes``; returns the id of one of them."""
        values = ", ".join(f"('{stamp(now)}', {root}, {kind}, {write_id})" for root, kind in rows)
        cursor = connection.exec_driver_sql(
            f"INSERT INTO changes (created_at, root_provider_id, kind, write_id) VALUES {values}"
        )
        return int(cursor.lastrowid)

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
        """``bump_generations`` and ``append_changes`` with their results, in as few round trips
        as the database allows."""
        found = self.bump_generations(connection, provider_ids, bumped, root_ids, now)
        return found, self.append_changes(connection, rows, write_id, now)


def stamp(now: datetime) -> str:
    """A time as SQLAlchemy stores it on SQLite; MySQL reads it too."""
    return now.strftime("%Y-%m-%d %H:%M:%S.000000")
