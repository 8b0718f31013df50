"""Resource classes: the standard ones, which never change, and custom ones."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from sqlalchemy import bindparam, func, select

from placement_server.store.errors import (
    NameInUse,
    ResourceClassExists,
    ResourceClassNotFound,
    StandardName,
)
from placement_server.store.records import NameRow
from placement_server.store.schema.names import FIRST_CUSTOM_CLASS_ID, is_standard, name_row
from placement_server.store.tables import allocations, inventories, resource_classes
from placement_server.store.transaction import (
    AnyRow,
    LostRace,
    ReadTransaction,
    WriteTransaction,
)

_C: Final = resource_classes.c
_ROWS: Final = select(_C.id, _C.name, _C.created_at, _C.updated_at)
_ONE: Final = _ROWS.where(_C.name == bindparam("name"))
_ALL: Final = _ROWS.order_by(_C.id)
# By its name, as names.hold_classes does: InnoDB takes that share lock in the index of the names
# alone, where a lock of the row found by its id would not conflict with it.
_HOLD: Final = select(_C.id).where(_C.name == bindparam("name")).with_for_update()
# The row of the first standard class, which is never changed: who makes a class has it.
_TURN: Final = select(_C.id).where(_C.id == 0).with_for_update()
_IN_USE: Final = select(
    sa.or_(
        *(
            sa.exists().where(table.c.resource_class_id == bindparam("class_id"))
            for table in (inventories, allocations)
        )
    )
)


def list_all(tx: ReadTransaction) -> list[NameRow]:
    """Return all classes in the order of their ids: the standard ones first."""
    return [name_row(row) for row in tx.execute(_ALL).all()]


def get(tx: ReadTransaction, name: str) -> NameRow:
    """Return one class.

    :raises ResourceClassNotFound: it does not exist.
    """
    row = tx.execute(_ONE, {"name": name}).first()
    if row is None:
        raise ResourceClassNotFound([name])
    return name_row(row)


def create(tx: WriteTransaction, name: str) -> NameRow:
    """Create a custom class.

    :raises ResourceClassExists: it exists.
    """
    if _found_or_turn(tx, name) is not None:
        raise ResourceClassExists(name)
    return _insert(tx, name)


def ensure(tx: WriteTransaction, name: str) -> tuple[NameRow, bool]:
    """Return the class, and whether it had to be created."""
    row = _found_or_turn(tx, name)
    if row is not None:
        return name_row(row), False
    return _insert(tx, name), True


def _found_or_turn(tx: WriteTransaction, name: str) -> AnyRow | None:
    """Return the row of a class; None if there is none, and no other writer makes one now."""
    row = tx.execute(_ONE, {"name": name}).first()
    if row is None:
        tx.execute(_TURN)
        row = tx.execute(_ONE, {"name": name}).first()
    return row


def _insert(tx: WriteTransaction, name: str) -> NameRow:
    """Insert a class with the next free id.

    Writers of classes take turns: with ids that each took for itself, many at once would lose the
    race for one again and again.
    """
    highest = tx.execute(select(func.max(_C.id))).scalar()
    next_id = FIRST_CUSTOM_CLASS_ID if highest is None else max(highest + 1, FIRST_CUSTOM_CLASS_ID)
    tx.execute(
        sa.insert(resource_classes).values(
            id=next_id, name=name, created_at=tx.now, updated_at=tx.now
        )
    )
    tx.touch_names()
    return get(tx, name)


def rename(tx: WriteTransaction, old: str, new: str) -> NameRow:
    """Rename a custom class.

    :raises ResourceClassNotFound: it does not exist.
    :raises StandardName: it is a standard class.
    :raises ResourceClassExists: another class has the new name.
    """
    resource_class = _hold(tx, old)
    if tx.execute(_ONE, {"name": new}).first() is not None:
        raise ResourceClassExists(new)
    tx.execute(
        sa.update(resource_classes)
        .where(_C.id == resource_class.id)
        .values(name=new, updated_at=tx.now)
    )
    tx.touch_names()
    return get(tx, new)


def delete(tx: WriteTransaction, name: str) -> None:
    """Delete a custom class.

    :raises ResourceClassNotFound: it does not exist.
    :raises StandardName: it is a standard class.
    :raises NameInUse: there are inventories of it, or allocations that older software left
        without an inventory.
    """
    resource_class = _hold(tx, name)
    if tx.execute(_IN_USE, {"class_id": resource_class.id}).scalar():
        raise NameInUse(name)
    tx.execute(sa.delete(resource_classes).where(_C.id == resource_class.id))
    tx.touch_names()


def _hold(tx: WriteTransaction, name: str) -> NameRow:
    """Lock a custom class: no inventory of it can be added until the transaction ends.

    :raises ResourceClassNotFound: it does not exist.
    :raises StandardName: it is a standard class.
    """
    resource_class = get(tx, name)
    if is_standard(name):
        raise StandardName(name)
    if tx.execute(_HOLD, {"name": name}).scalar() != resource_class.id:
        raise LostRace(f"The resource class {name} was renamed or deleted meanwhile.")
    return resource_class
