"""The use of inventories after a write of a tree, checked against them without a database."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from placement_server.store.allocations.claim_check import Key
from placement_server.store.providers.capacity import usable
from placement_server.store.providers.inventory_rows import HeldInventory
from placement_server.store.records import InventoryRecord
from placement_server.store.trees.holdings import HeldInTree
from placement_server.store.trees.plan import StockKey
from placement_server.store.trees.tree_write import Reason, TreeContradiction

Holder = tuple[str, str, str, int]
"""Consumer uuid, provider uuid, resource class and amount."""


def claim_conflicts(
    holdings: Sequence[HeldInTree],
    stock: Mapping[StockKey, HeldInventory | InventoryRecord],
    used: Mapping[StockKey, int],
    class_ids: Mapping[str, int],
) -> list[TreeContradiction]:
    """Return the new amounts that the inventories do not give.

    An inventory that is over capacity may be used as much as before, or less.

    :param stock: the inventories after the write.
    :param used: their use before it.
    """
    class_names = {number: name for name, number in class_ids.items()}
    given_back: dict[tuple[str, int], int] = {}
    for item in holdings:
        for key, amount in item.old.items():
            given_back[key] = given_back.get(key, 0) + amount
    totals: dict[tuple[str, int], int] = {}
    conflicts = []
    for item in holdings:
        for (uuid, class_id), amount in item.new.items():
            name = class_names[class_id]
            total = totals[uuid, class_id] = totals.get((uuid, class_id), 0) + amount
            back = given_back.get((uuid, class_id), 0)
            conflict = _conflict(stock.get((uuid, name)), amount, total, back, used, (uuid, name))
            if conflict is not None:
                reason, free, why = conflict
                conflicts.append(
                    TreeContradiction(
                        reason,
                        f"Consumer {item.write.uuid} cannot have {amount} of {name} of resource "
                        f"provider {uuid}: {why}.",
                        provider=uuid,
                        resource_class=name,
                        consumer=item.write.uuid,
                        requested_amount=amount,
                        free=free,
                    )
                )
    return conflicts


def _conflict(
    inventory: HeldInventory | InventoryRecord | None,
    amount: int,
    total: int,
    back: int,
    used: Mapping[StockKey, int],
    key: StockKey,
) -> tuple[Reason, int, str] | None:
    if inventory is None:
        return Reason.NO_INVENTORY, 0, "it has no such inventory"
    others = used.get(key, 0) - back
    capacity = usable(inventory.total, inventory.reserved, inventory.allocation_ratio)
    free = max(0, capacity - (others + total - amount))
    if amount < inventory.min_unit or amount > inventory.max_unit or amount % inventory.step_size:
        why = (
            f"amounts are {inventory.min_unit} to {inventory.max_unit} in steps of "
            f"{inventory.step_size}"
        )
        return Reason.CONSTRAINT, free, why
    if total > back and others + total > capacity:
        return Reason.CAPACITY, free, f"{free} are free"
    return None


def deltas(holdings: Sequence[HeldInTree], provider_ids: Mapping[str, int]) -> dict[Key, int]:
    """Return by how much the use of each inventory changes, where it does."""
    sums: dict[Key, int] = {}
    for item in holdings:
        for (uuid, class_id), change in item.delta.items():
            key = (provider_ids[uuid], class_id)
            sums[key] = sums.get(key, 0) + change
    return {key: change for key, change in sums.items() if change}


def use_conflicts(
    holders: Sequence[Holder], names: Collection[str], deleted_uuids: Collection[str]
) -> list[TreeContradiction]:
    """Return the holders of what vanishes that the request does not name.

    :param holders: of inventories and providers to delete.
    :param names: the consumers whose allocations the request replaces.
    """
    return [
        TreeContradiction(
            Reason.PROVIDER_IN_USE if uuid in deleted_uuids else Reason.INVENTORY_IN_USE,
            f"Consumer {consumer}, which the request does not name, holds {amount} of {name} of "
            f"resource provider {uuid}, which would vanish.",
            provider=uuid,
            resource_class=name,
            consumer=consumer,
            requested_amount=amount,
            free=0,
        )
        for consumer, uuid, name, amount in holders
        if consumer not in names
    ]
