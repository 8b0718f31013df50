"""Names and ids of resource classes and traits.

Standard resource classes have fixed ids. Custom classes and all traits get theirs from the
database, where another process may delete or rename them at any time: code that must be exact asks
in its own transaction, and the cache here is for readers that follow the feed of changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

import os_resource_classes
from sqlalchemy import Select, select

from placement_server.store.dialects.among import among
from placement_server.store.errors import ResourceClassNotFound, TraitNotFound
from placement_server.store.tables import resource_classes, traits
from placement_server.store.transactions.transaction import ReadTransaction

CUSTOM_PREFIX: Final = "CUSTOM_"
FIRST_CUSTOM_CLASS_ID: Final = 10000
STANDARD_CLASS_IDS: Final = {name: i for i, name in enumerate(os_resource_classes.STANDARDS)}
_STANDARD_NAMES: Final = dict(enumerate(os_resource_classes.STANDARDS))

_CLASSES = select(resource_classes.c.name, resource_classes.c.id).where(
    among(resource_classes.c.name, "names")
)
_HOLD_CLASSES = _CLASSES.with_for_update(read=True)
_CLASSES_BY_ID = select(resource_classes.c.id, resource_classes.c.name).where(
    among(resource_classes.c.id, "ids")
)
_TRAITS = select(traits.c.name, traits.c.id).where(among(traits.c.name, "names"))
_ALL_CLASSES = select(resource_classes.c.id, resource_classes.c.name)
_ALL_TRAITS = select(traits.c.id, traits.c.name)


def is_standard(name: str) -> bool:
    return not name.startswith(CUSTOM_PREFIX)


class ClassIds(dict[str, int]):
    """Ids of resource classes by name."""

    def require(self, names: Iterable[str]) -> None:
        """Check that all names are there.

        :raises ResourceClassNotFound: some are not; it has all of these.
        """
        missing_names = [name for name in names if name not in self]
        if missing_names:
            raise ResourceClassNotFound(missing_names)


def class_ids(tx: ReadTransaction, names: Collection[str]) -> ClassIds:
    """Return the ids of resource classes as this transaction sees them.

    :raises ResourceClassNotFound: some do not exist; it has all of these.
    """
    ids = _class_ids(tx, names, _CLASSES)
    ids.require(names)
    return ids


def hold_classes(tx: ReadTransaction, names: Collection[str]) -> ClassIds:
    """Return the ids of those of the resource classes that exist, and lock the custom ones.

    They cannot be deleted or renamed before this transaction ends. A writer that adds an inventory
    calls this first, before it locks any inventory. Standard classes never change and need no lock.
    """
    return _class_ids(tx, names, _HOLD_CLASSES)


def _class_ids(
    tx: ReadTransaction, names: Collection[str], statement: Select[tuple[str, int]]
) -> ClassIds:
    ids = ClassIds((name, STANDARD_CLASS_IDS[name]) for name in names if name in STANDARD_CLASS_IDS)
    others = sorted(name for name in names if name not in ids)
    if others:
        ids.update(tx.execute_among(statement, "names", others))
    return ids


def class_names(tx: ReadTransaction, ids: Sequence[int]) -> list[str]:
    """Return the names of resource classes, in the order of `ids`."""
    custom = [i for i in ids if i >= FIRST_CUSTOM_CLASS_ID]
    names = _STANDARD_NAMES
    if custom:
        names = names | dict(tx.execute_among(_CLASSES_BY_ID, "ids", custom))
    return [names[i] for i in ids]


def trait_ids(tx: ReadTransaction, names: Collection[str]) -> dict[str, int]:
    """Return the ids of traits.

    :raises TraitNotFound: some do not exist; it has all of these.
    """
    ids: dict[str, int] = dict(tx.execute_among(_TRAITS, "names", names))
    missing_names = sorted(set(names) - ids.keys())
    if missing_names:
        raise TraitNotFound(missing_names)
    return ids


class NameTables:
    """All names and ids as of the last refresh. Thread safe: a refresh swaps whole tables."""

    def __init__(self) -> None:
        self._tables: tuple[dict[str, int], dict[int, str], dict[str, int], dict[int, str]]
        self._tables = ({}, {}, {}, {})

    def refresh(self, tx: ReadTransaction) -> None:
        class_names: dict[int, str] = dict(tx.execute(_ALL_CLASSES).all())
        trait_names: dict[int, str] = dict(tx.execute(_ALL_TRAITS).all())
        self._tables = (
            {name: i for i, name in class_names.items()},
            class_names,
            {name: i for i, name in trait_names.items()},
            trait_names,
        )

    @property
    def class_ids(self) -> dict[str, int]:
        return self._tables[0]

    @property
    def class_names(self) -> dict[int, str]:
        return self._tables[1]

    @property
    def trait_ids(self) -> dict[str, int]:
        return self._tables[2]

    @property
    def trait_names(self) -> dict[int, str]:
        return self._tables[3]

    def class_id(self, tx: ReadTransaction, name: str) -> int:
        """Return the id of a class; a new name causes one refresh.

        :raises ResourceClassNotFound: it does not exist.
        """
        if name not in self.class_ids:
            self.refresh(tx)
        try:
            return self.class_ids[name]
        except KeyError:
            raise ResourceClassNotFound([name]) from None

    def class_name(self, tx: ReadTransaction, class_id: int) -> str:
        if class_id not in self.class_names:
            self.refresh(tx)
        return self.class_names[class_id]

    def trait_id(self, tx: ReadTransaction, name: str) -> int:
        """Return the id of a trait; a new name causes one refresh.

        :raises TraitNotFound: it does not exist.
        """
        if name not in self.trait_ids:
            self.refresh(tx)
        try:
            return self.trait_ids[name]
        except KeyError:
            raise TraitNotFound([name]) from None
