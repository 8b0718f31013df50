"""Copies of a scene: the rows that the store made, with other names and ids.

They take a quarter of its statements, and several can be made at once.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import sqlalchemy as sa

from placement_server.store import tables
from placement_server.store.transaction import STRUCTURE, ReadTransaction, WriteTransaction

Scene: TypeAlias = dict[str, str]
_Row: TypeAlias = dict[str, Any]

_NAMES: Final = {
    tables.resource_classes: "name",
    tables.traits: "name",
    tables.projects: "external_id",
    tables.users: "external_id",
    tables.consumer_types: "name",
    tables.placement_aggregates: "uuid",
    tables.resource_providers: "uuid",
    tables.consumers: "uuid",
}
"""The columns by which a scene names rows; first the tables that others refer to."""

_OF_PROVIDERS: Final = (
    tables.inventories,
    tables.allocations,
    tables.resource_provider_traits,
    tables.resource_provider_aggregates,
)
_REFERENCES: Final = {
    "root_provider_id": tables.resource_providers,
    "parent_provider_id": tables.resource_providers,
    "resource_provider_id": tables.resource_providers,
    "resource_class_id": tables.resource_classes,
    "trait_id": tables.traits,
    "aggregate_id": tables.placement_aggregates,
    "project_id": tables.projects,
    "user_id": tables.users,
    "consumer_type_id": tables.consumer_types,
}
_WITH_IDS: Final = (*_NAMES, tables.inventories, tables.allocations)
_FIRST_ID: Final = 1_000_000
"""Of copies. What the store makes has lower ones, also where a sequence knows nothing of ours."""

_NEWEST: Final = sa.select(
    *(sa.select(sa.func.max(table.c.id)).scalar_subquery() for table in _WITH_IDS)
)


@dataclass(frozen=True)
class OriginalScene:
    """A scene that the store made, as it was before anything happened to it."""

    scene: Scene
    rows: Mapping[sa.Table, list[_Row]]

    @classmethod
    def read(cls, tx: ReadTransaction, scene: Scene) -> OriginalScene:
        names = list(scene.values())
        rows = {
            table: _found(tx, table, table.c[column].in_(names)) for table, column in _NAMES.items()
        }
        providers = [row["id"] for row in rows[tables.resource_providers]]
        for table in _OF_PROVIDERS:
            rows[table] = _found(tx, table, table.c.resource_provider_id.in_(providers))
        return cls(scene, {table: found for table, found in rows.items() if found})

    def copy(self, tx: WriteTransaction, number: int) -> list[Scene]:
        """Make this many further ones."""
        newest = dict(zip(_WITH_IDS, tx.execute(_NEWEST).one(), strict=True))
        free = {table: max(found or 0, _FIRST_ID) + 1 for table, found in newest.items()}
        copied_rows: dict[sa.Table, list[_Row]] = {table: [] for table in self.rows}
        scenes = []
        for _ in range(number):
            scenes.append({role: _new(name) for role, name in self.scene.items()})
            ids = self._new_ids(free)
            texts = {old: scenes[-1][role] for role, old in self.scene.items()}
            for table, rows in self.rows.items():
                copied_rows[table] += [_copied(table, row, ids, texts) for row in rows]
        for table, new_rows in copied_rows.items():
            tx.execute(sa.insert(table), new_rows)
        roots = {row["root_provider_id"] for row in copied_rows[tables.resource_providers]}
        tx.touch(roots, STRUCTURE)
        if not {tables.resource_classes, tables.traits}.isdisjoint(copied_rows):
            tx.touch_names()
        return scenes

    def _new_ids(self, free: dict[sa.Table, int]) -> dict[sa.Table, dict[int, int]]:
        """In the order of the old ones, as rows are locked in that order."""
        ids = {}
        for table in free.keys() & self.rows.keys():
            old = [row["id"] for row in self.rows[table]]
            ids[table] = dict(zip(old, range(free[table], free[table] + len(old)), strict=True))
            free[table] += len(old)
        return ids


def _found(tx: ReadTransaction, table: sa.Table, condition: sa.ColumnElement[bool]) -> list[_Row]:
    found = tx.execute(sa.select(table).where(condition).order_by(*table.primary_key))
    return [dict(row) for row in found.mappings()]


def _new(name: str) -> str:
    """Another uuid, or the name of a class or trait that is made of one."""
    made = str(uuid.uuid4())
    return f"CUSTOM_{made.replace('-', '_').upper()}" if name.startswith("CUSTOM_") else made


def _copied(
    table: sa.Table,
    row: _Row,
    ids: Mapping[sa.Table, Mapping[int, int]],
    texts: Mapping[str, str],
) -> _Row:
    copied: _Row = {}
    for column, value in row.items():
        target = table if column == "id" else _REFERENCES.get(column)
        if target is not None:
            copied[column] = ids.get(target, {}).get(value, value)
        else:
            copied[column] = _renamed(value, texts) if isinstance(value, str) else value
    return copied


def _renamed(text: str, texts: Mapping[str, str]) -> str:
    """Replace a name of the scene, also where it is a part of the text."""
    for old, new in texts.items():
        text = text.replace(old, new)
    return text
