"""Names and ids of resource classes and traits.

Standard resource classes have fixed ids. Custom classes and all traits get theirs from the
database, where another process may delete or rename them at any time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

import os_resource_classes
import os_traits
from sqlalchemy import Select, insert, select, text

from placement_server.store.dialects.batches import among
from placement_server.store.errors import ResourceClassNotFound, TraitNotFound
from placement_server.store.records import NameRow
from placement_server.store.tables import changes, resource_classes, traits
from placement_server.store.transaction import AnyRow, ReadTransaction, WriteTransaction, aware

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
_ANY_CHANGE: Final = select(changes.c.id).limit(1)


def is_standard(name: str) -> bool:
    return not name.startswith(CUSTOM_PREFIX)


def name_row(row: AnyRow | tuple[Any, ...]) -> NameRow:
    """Return the trait or resource class of a row: id, name, and when it was made and changed."""
    return NameRow(row[0], row[1], aware(row[3] or row[2]))


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
    ids = ClassIds({name: STANDARD_CLASS_IDS[name] for name in STANDARD_CLASS_IDS.keys() & names})
    others = set(names) - ids.keys()
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


def insert_standard_names(tx: WriteTransaction) -> None:
    """Insert the standard classes and traits that are missing; leave all others alone.

    There is a change record after it, also in a database that had none, as one of OpenStack
    Placement: readers take the first record that they see for one without open ones below it.

    Of two processes that do this at the same time one fails on a unique key; it is retried and
    finds nothing missing.
    """
    class_names = set(tx.execute(select(resource_classes.c.name)).scalars())
    new_classes = [
        {"id": STANDARD_CLASS_IDS[name], "name": name, "created_at": tx.now, "updated_at": tx.now}
        for name in os_resource_classes.STANDARDS
        if name not in class_names and STANDARD_CLASS_IDS[name] < FIRST_CUSTOM_CLASS_ID
    ]
    if new_classes:
        if tx.batches.family == "mysql":
            # the first class has number 0, which MySQL would take for "the next one"
            tx.execute(text("SET SESSION sql_mode = CONCAT(@@sql_mode, ',NO_AUTO_VALUE_ON_ZERO')"))
        tx.execute(insert(resource_classes), new_classes)
    trait_names = set(tx.execute(select(traits.c.name)).scalars())
    new_traits = [
        {"name": name, "created_at": tx.now, "updated_at": tx.now}
        for name in sorted(os_traits.get_traits())
        if name not in trait_names
    ]
    if new_traits:
        tx.execute(insert(traits), new_traits)
    if new_classes or new_traits or not tx.execute(_ANY_CHANGE).first():
        tx.touch_names()
