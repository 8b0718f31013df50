"""The check of new allocations against inventories, without a database."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from placement_server.store.dialects.batches import InventoryUpdate
from placement_server.store.errors import (
    CapacityExceeded,
    ConstraintViolated,
    InvalidInventoryForAllocation,
)
from placement_server.store.records import Key


class KnownInventory(NamedTuple):
    """An inventory, with the attributes that claims are checked against."""

    id: int
    min_unit: int
    max_unit: int
    step_size: int
    capacity: int
    used: int


class ProviderRequest(NamedTuple):
    """The new allocations of one consumer at one provider: amounts by resource class."""

    consumer_uuid: str
    provider_uuid: str
    provider_id: int
    amounts: Mapping[str, int]


class RequestedAllocations:
    """All new allocations of a request.

    :ivar parts: in the order of the request.
    :ivar class_ids: the ids of all resource classes that it names.
    :ivar provider_ids: the ids of all providers that it names.
    :ivar rows: provider id, class id, consumer and amount of each allocation.
    :ivar amounts: the amounts by inventory.
    """

    def __init__(self, parts: Sequence[ProviderRequest], class_ids: Mapping[str, int]) -> None:
        self.parts = parts
        self.class_ids = class_ids
        self.provider_ids = frozenset([part.provider_id for part in parts])
        self.rows = [
            (provider_id, class_ids[name], consumer_uuid, amount)
            for consumer_uuid, _, provider_id, amounts in parts
            for name, amount in amounts.items()
        ]
        self.amounts: dict[Key, list[int]] = {}
        for provider_id, class_id, _, amount in self.rows:
            self.amounts.setdefault((provider_id, class_id), []).append(amount)


class AmountSummary(NamedTuple):
    """The sum, smallest and largest of the amounts that one request takes from one inventory."""

    total: int
    smallest: int
    largest: int


def check(
    requested_use: RequestedAllocations,
    inventories: Mapping[Key, KnownInventory],
    given_back: Mapping[Key, int],
) -> dict[Key, AmountSummary]:
    """Return what the request takes from each inventory.

    An inventory that is over capacity may be used as much as before or less, compared with the
    state before the request. The errors are for the first allocation that is not possible.

    :param given_back: the present allocations of the request's consumers.
    :raises InvalidInventoryForAllocation: there is no inventory for it.
    :raises ConstraintViolated: the amount is not one that the inventory gives out.
    :raises CapacityExceeded: the amount does not fit.
    """
    taken_amounts = {
        key: AmountSummary(sum(amounts), min(amounts), max(amounts))
        for key, amounts in requested_use.amounts.items()
    }
    if not all(
        _fits(inventories.get(key), amounts, taken_amounts[key], given_back.get(key, 0))
        for key, amounts in requested_use.amounts.items()
    ):
        _refuse(requested_use, inventories, given_back)
    return taken_amounts


def _fits(
    inventory: KnownInventory | None, amounts: Sequence[int], summary: AmountSummary, back: int
) -> bool:
    """Check all amounts that are taken from one inventory at once: nearly always they fit."""
    if inventory is None:
        return False
    total, smallest, largest = summary
    step = inventory.step_size
    return (
        inventory.min_unit <= smallest
        and largest <= inventory.max_unit
        and (step == 1 or not any(amount % step for amount in amounts))
        and (total <= back or inventory.used - back + total <= inventory.capacity)
    )


def _refuse(
    requested_use: RequestedAllocations,
    inventories: Mapping[Key, KnownInventory],
    given_back: Mapping[Key, int],
) -> None:
    """Raise the error of the first allocation that is not possible, as `check` describes."""
    _check_inventories_exist(requested_use, inventories)
    totals: defaultdict[Key, int] = defaultdict(int)
    for _, uuid, provider_id, amounts in requested_use.parts:
        for name, amount in amounts.items():
            key = (provider_id, requested_use.class_ids[name])
            inventory = inventories.get(key)
            if inventory is None:
                raise InvalidInventoryForAllocation([name], [uuid])
            units = inventory.min_unit, inventory.max_unit, inventory.step_size
            if not units[0] <= amount <= units[1] or amount % units[2]:
                raise ConstraintViolated(name, uuid, amount, *units)
            back, before = given_back.get(key, 0), totals[key]
            totals[key] = total = before + amount
            if total > back and inventory.used - back + total > inventory.capacity:
                free = inventory.capacity - (inventory.used - back + before)
                raise CapacityExceeded(name, uuid, amount, max(free, 0))


def _check_inventories_exist(
    requested_use: RequestedAllocations, inventories: Mapping[Key, KnownInventory]
) -> None:
    """Refuse providers that have none of all the classes that the request names."""
    class_ids = {class_id for _, class_id in requested_use.amounts}
    stocked_ids = {provider_id for provider_id, class_id in inventories if class_id in class_ids}
    if not requested_use.provider_ids <= stocked_ids:
        providers = {part.provider_id: part.provider_uuid for part in requested_use.parts}
        classes = {
            requested_use.class_ids[name]: name
            for part in requested_use.parts
            for name in part.amounts
        }
        raise InvalidInventoryForAllocation(
            [name for _, name in sorted(classes.items())],
            [uuid for provider_id, uuid in providers.items() if provider_id not in stocked_ids],
        )


def changes(
    taken_amounts: Mapping[Key, AmountSummary],
    inventories: Mapping[Key, KnownInventory],
    given_back: Mapping[Key, int],
) -> list[InventoryUpdate]:
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
        taken_amount = taken_amounts.get(key)
        if taken_amount is None:
            changes.append(InventoryUpdate(inventory.id, *key, -back))
        else:
            changes.append(
                InventoryUpdate(
                    inventory.id,
                    *key,
                    taken_amount.total - back,
                    taken_amount.smallest,
                    taken_amount.largest,
                    inventory.step_size,
                )
            )
    return changes
