"""What a set of new allocations does to inventories, and whether it may. No database here."""

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
    """What a claim needs to know of an inventory."""

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
    """An inventory as far as claims are checked against it."""

    id: int
    min_unit: int
    max_unit: int
    step_size: int
    capacity: int
    used: int


class Asked(NamedTuple):
    """One new allocation, in the order of the request."""

    consumer_uuid: str
    provider_uuid: str
    provider_id: int
    resource_class: str
    class_id: int
    amount: int


class Taken(NamedTuple):
    """All that one request takes from one inventory."""

    total: int
    smallest: int
    largest: int


def check(
    asked: Sequence[Asked],
    inventories: Mapping[Key, Inventory],
    given_back: Mapping[Key, int],
) -> dict[Key, Taken]:
    """What the request takes from each inventory.

    ``given_back`` is what the request's consumers hold now. An inventory that is over capacity
    may be used as much as before or less, judged by the state before the request.

    Raises InvalidInventoryForAllocation, ConstraintViolated or CapacityExceeded for the first
    allocation that is not possible.
    """
    _check_inventories_exist(asked, inventories)
    taken: dict[Key, Taken] = {}
    for one in asked:
        key = (one.provider_id, one.class_id)
        inventory = inventories.get(key)
        if inventory is None:
            raise InvalidInventoryForAllocation([one.resource_class], [one.provider_uuid])
        amount = one.amount
        if (
            amount < inventory.min_unit
            or amount > inventory.max_unit
            or amount % inventory.step_size
        ):
            raise ConstraintViolated(
                one.resource_class,
                one.provider_uuid,
                amount,
                inventory.min_unit,
                inventory.max_unit,
                inventory.step_size,
            )
        so_far = taken.get(key)
        total = amount if so_far is None else so_far.total + amount
        back = given_back.get(key, 0)
        if total > back and inventory.used - back + total > inventory.capacity:
            free = inventory.capacity - (inventory.used - back + total - amount)
            raise CapacityExceeded(one.resource_class, one.provider_uuid, amount, max(free, 0))
        taken[key] = (
            Taken(amount, amount, amount)
            if so_far is None
            else Taken(total, min(so_far.smallest, amount), max(so_far.largest, amount))
        )
    return taken


def _check_inventories_exist(asked: Sequence[Asked], inventories: Mapping[Key, Inventory]) -> None:
    """Refuse providers that have none of all the classes that the request names."""
    providers = {one.provider_id: one.provider_uuid for one in asked}
    classes = dict(sorted({one.class_id: one.resource_class for one in asked}.items()))
    stocked = {provider_id for provider_id, class_id in inventories if class_id in classes}
    bare = [uuid for provider_id, uuid in providers.items() if provider_id not in stocked]
    if bare:
        raise InvalidInventoryForAllocation(list(classes.values()), bare)


def changes(
    taken: Mapping[Key, Taken],
    inventories: Mapping[Key, Inventory],
    given_back: Mapping[Key, int],
) -> list[InventoryChange]:
    """The changes of use, in the order of the keys.

    What is taken and given back in equal parts is there too: the statement that applies it
    also proves that the inventory is still the one that was checked.
    """
    result = []
    for key in sorted(taken.keys() | given_back.keys()):
        inventory = inventories.get(key)
        if inventory is None:
            # an allocation without inventory, left by older software: nothing to give back to
            continue
        back = given_back.get(key, 0)
        new = taken.get(key)
        if new is None:
            result.append(InventoryChange(inventory.id, *key, -back))
        else:
            result.append(
                InventoryChange(
                    inventory.id,
                    *key,
                    new.total - back,
                    new.smallest,
                    new.largest,
                    inventory.step_size,
                )
            )
    return result
