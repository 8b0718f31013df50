"""Read and write transactions, on which the functions of the store work."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias, TypeVar

from sqlalchemy import Connection, CursorResult, Executable, Row

from placement_server.store.dialects import (
    ChangeRecord,
    InventoryChange,
    Rise,
    Settled,
    batches_of,
    chunks,
)
from placement_server.store.transactions.known_owners import KnownOwners

# Kinds of change records. A reader that sees STRUCTURE reads the whole tree again.
STRUCTURE: Final = 0
USAGE: Final = 1
NAMES: Final = 2
# Not the record of a write: it holds an id that no write used (see changes.history).
VOID: Final = 3

# The root id of records that belong to no tree: NAMES and VOID.
NO_ROOT: Final = 0

_Value = TypeVar("_Value", int, str)
AnyRow: TypeAlias = "Row[*tuple[Any, ...]]"
AnyResult: TypeAlias = "CursorResult[*tuple[Any, ...]]"

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class ReadTransaction:
    """A consistent view of the database; everything read in it belongs to one moment."""

    __slots__ = ("batches", "connection")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.batches = batches_of(connection.dialect)

    def execute(
        self,
        statement: Executable,
        parameters: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    ) -> AnyResult:
        return self.connection.execute(statement, parameters)

    def execute_among(
        self, statement: Executable, parameter: str, values: Iterable[_Value]
    ) -> list[AnyRow]:
        """Execute a statement about any number of values, a bounded number at a time.

        :param parameter: the name of an expanding parameter, for the values.
        :returns: the rows; in the order of the values, if the statement sorts by them.
        """
        return [
            row
            for chunk in chunks(sorted(set(values)))
            for row in self.execute(statement, {parameter: chunk})
        ]


class WriteTransaction(ReadTransaction):
    """A transaction that changes the database, and records which trees it touched.

    :ivar now: the time that all rows of the transaction carry: UTC, naive as the columns are, whole
        seconds because MySQL would round the rest.
    """

    __slots__ = ("_ended_trees", "_touched_roots", "change_id", "known_owners", "now", "write_id")

    def __init__(self, connection: Connection, known_owners: KnownOwners) -> None:
        super().__init__(connection)
        self.known_owners = known_owners
        self.now = datetime.now(UTC).replace(tzinfo=None, microsecond=0)
        self._touched_roots: set[tuple[int, int]] = set()
        self._ended_trees: dict[int, str] = {}
        self.write_id = secrets.randbits(63)
        self.change_id: int | None = None

    def touch(self, root_ids: Iterable[int], kind: int) -> None:
        """Record that the trees with these roots changed; ``kind`` is STRUCTURE or USAGE."""
        self._touched_roots.update((root_id, kind) for root_id in root_ids)

    def end_tree(self, root_id: int, uuid: str) -> None:
        """Record that a provider is no root any more: it was deleted, or moved below another one.

        Its change records need the uuid from here on, because nothing else may lead from the root
        id to it.
        """
        self.touch([root_id], STRUCTURE)
        self._ended_trees[root_id] = uuid

    def touch_names(self) -> None:
        """Record that resource classes or traits were created, renamed or deleted."""
        self._touched_roots.add((NO_ROOT, NAMES))

    @property
    def touched_trees(self) -> Collection[tuple[int, int]]:
        """The changes so far: pairs of root id and kind."""
        return self._touched_roots

    def _records(self) -> list[ChangeRecord]:
        return [
            ChangeRecord(
                root_id, kind, self._ended_trees.get(root_id) if kind == STRUCTURE else None
            )
            for root_id, kind in sorted(self._touched_roots)
        ]

    @staticmethod
    def new_id(result: AnyResult) -> int:
        """Return the id that the database gave to the one inserted row."""
        key = result.inserted_primary_key
        assert key is not None, "one row was inserted into a table with a key"
        return int(key[0])

    def settle(self, changes: Sequence[InventoryChange], rises: Sequence[Rise]) -> Settled:
        """Change inventories, raise the generations of providers and record that the use changed.

        No tree may be touched after it: it also writes the change records. :meth:`Batches.settle`
        describes the rest.
        """
        self.touch((rise.root_id for rise in rises), USAGE)
        settlement = self.batches.settle(
            self.connection, changes, rises, self._records(), self.write_id, self.now
        )
        self.change_id = settlement.change_id
        return settlement

    def append_changes(self) -> None:
        """Write the change records, unless that is done. It is the last statement."""
        if self._touched_roots and self.change_id is None:
            self.change_id = self.batches.append_changes(
                self.connection, self._records(), self.write_id, self.now
            )


def aware(value: datetime | None) -> datetime:
    """Return a time of the database as an aware one; rows of old databases may have none."""
    return EPOCH if value is None else value.replace(tzinfo=UTC)
