"""The check of new allocations against inventories, without a database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from placement_server.store.dialects import InventoryChange
from placement_server.store.errors import (
    CapacityExceeded,
    ConstraintViolated,
    InvalidInventoryForAllocation,
)

Key = tuple[int, int]
"""Provider id and class id: the order in which all transactions lock inventories."""


class Inventory(Protocol):
    """The attributes of an inventory that a claim is checked against."""

    @property
    def id(self) -> int: ...
    @property
    def min_unit(self) -> int: ...
    @property
    def max_unit(self) -> int: ...
    @property
    def step_size(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    @property
    def used(self) -> int: ...


class KnownInventory(NamedTuple):
    """An inventory, with the attributes that claims are checked against."""

    id: int
    min_unit: int
    max_unit: int
    step_size: int
    capacity: int
    used: int


class Requested(NamedTuple):
    """One new allocation, in the order of the request."""

    consumer_uuid: str
    provider_uuid: str
    provider_id: int
    resource_class: str
    class_id: int
    amount: int


class Taken(NamedTuple):
    """The sum, smallest and largest of the amounts that one request takes from one inventory."""

    total: int
    smallest: int
    largest: int


def check(
    requested: Sequence[Requested],
    inventories: Mapping[Key, Inventory],
    given_back: Mapping[Key, int],
) -> dict[Key, Taken]:
    """Return what the request takes from each inventory.

    An inventory that is over capacity may be used as much as before or less, compared with the
    state before the request. The errors are for the first allocation that is not possible.

    :param given_back: the present allocations of the request's consumers.
    :raises InvalidInventoryForAllocation: there is no inventory for it.
    :raises ConstraintViolated: the amount is not one that the inventory gives out.
    :raises CapacityExceeded: the amount does not fit.
    """
    _check_inventories_exist(requested, inventories)
    taken_amounts: dict[Key, Taken] = {}
    for new in requested:
        key = (new.provider_id, new.class_id)
        inventory = inventories.get(key)
        if inventory is None:
            raise InvalidInventoryForAllocation([new.resource_class], [new.provider_uuid])
        amount = new.amount
        if (
            amount < inventory.min_unit
            or amount > inventory.max_unit
            or amount % inventory.step_size
        ):
            raise ConstraintViolated(
                new.resource_class,
                new.provider_uuid,
                amount,
                inventory.min_unit,
                inventory.max_unit,
                inventory.step_size,
            )
        so_far = taken_amounts.get(key)
        total = amount if so_far is None else so_far.total + amount
        back = given_back.get(key, 0)
        if total > back and inventory.used - back + total > inventory.capacity:
            free = inventory.capacity - (inventory.used - back + total - amount)
            raise CapacityExceeded(new.resource_class, new.provider_uuid, amount, max(free, 0))
        taken_amounts[key] = (
            Taken(amount, amount, amount)
            if so_far is None
            else Taken(total, min(so_far.smallest, amount), max(so_far.largest, amount))
        )
    return taken_amounts


def _check_inventories_exist(
    requested: Sequence[Requested], inventories: Mapping[Key, Inventory]
) -> None:
    """Refuse providers that have none of all the classes that the request names."""
    providers = {new.provider_id: new.provider_uuid for new in requested}
    classes = dict(sorted({new.class_id: new.resource_class for new in requested}.items()))
    stocked = {provider_id for provider_id, class_id in inventories if class_id in classes}
    bare = [uuid for provider_id, uuid in providers.items() if provider_id not in stocked]
    if bare:
        raise InvalidInventoryForAllocation(list(classes.values()), bare)


def changes(
    taken_amounts: Mapping[Key, Taken],
    inventories: Mapping[Key, Inventory],
    given_back: Mapping[Key, int],
) -> list[InventoryChange]:
    """Return the changes of use, in the order of the keys.

    Those of inventories with as much taken as given back are included: the statement that applies
    them also proves that the inventory is still the one that was checked.
    """
    changes = []
    for key in sorted(taken_amounts.keys() | given_back.keys()):
        inventory = inventories.get(key)
        if inventory is None:
            # an allocation without inventory, left by older software: nothing to give back to
            continue
        back = given_back.get(key, 0)
        new = taken_amounts.get(key)
        if new is None:
            changes.append(InventoryChange(inventory.id, *key, -back))
        else:
            changes.append(
                InventoryChange(
                    inventory.id,
                    *key,
                    new.total - back,
                    new.smallest,
                    new.largest,
                    inventory.step_size,
                )
            )
    return changes
