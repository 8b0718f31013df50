"""Inventories: the amounts of each resource class that a provider has.

Every change locks the provider's inventories first, so that no claim happens in between, and then
raises the provider's generation, as claims do. That locks the provider, and an inventory is added
only under this lock (`inventory_rows.write` gives the reason). A write that may add an inventory
locks its class before all of that.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from placement_server.store.errors import (
    InventoryExists,
    InventoryInUse,
    InventoryNotFound,
    ReservedTooLarge,
)
from placement_server.store.providers import inventory_rows, provider_rows
from placement_server.store.providers.capacity import reserved_is_valid, usable
from placement_server.store.providers.inventory_rows import HeldInventory
from placement_server.store.providers.providers import bump
from placement_server.store.records import InventoryRecord, Key, Provider
from placement_server.store.schema.names import class_ids, class_names, hold_classes
from placement_server.store.transaction import STRUCTURE, WriteTransaction

LOG = logging.getLogger(__name__)


def replace(
    tx: WriteTransaction,
    uuid: str,
    *,
    generation: int,
    records: Mapping[str, InventoryRecord],
    reserved_may_equal_total: bool,
) -> Provider:
    """Make `records` the whole inventory of the provider; the generation rises always.

    :raises ProviderNotFound: the provider does not exist.
    :raises ConcurrentUpdate: `generation` is not the current one.
    :raises ReservedTooLarge: a record reserves too much.
    :raises ResourceClassNotFound: classes do not exist.
    :raises InventoryInUse: inventories to remove are in use.
    """
    ids = hold_classes(tx, records)
    provider, old_inventories = _hold(tx, uuid, generation)
    for resource_class, record in records.items():
        _check_reserved(tx, uuid, resource_class, record, reserved_may_equal_total)
    ids.require(records)
    new_records = {(provider.id, ids[name]): record for name, record in records.items()}
    _remove(tx, provider, [old_inventories[key] for key in old_inventories.keys() - new_records])
    return _write(tx, provider, old_inventories, new_records)


def add(
    tx: WriteTransaction,
    uuid: str,
    resource_class: str,
    record: InventoryRecord,
    *,
    reserved_may_equal_total: bool,
) -> Provider:
    """Give the provider an inventory of one more class.

    :raises ProviderNotFound: the provider does not exist.
    :raises ReservedTooLarge: the record reserves too much.
    :raises ResourceClassNotFound: the class does not exist.
    :raises InventoryExists: the provider has an inventory of the class.
    """
    ids = hold_classes(tx, [resource_class])
    provider, old_inventories = _hold(tx, uuid)
    _check_reserved(tx, uuid, resource_class, record, reserved_may_equal_total)
    ids.require([resource_class])
    key = (provider.id, ids[resource_class])
    if key in old_inventories:
        raise InventoryExists(resource_class, uuid)
    bump(tx, provider)
    return _write(tx, provider, old_inventories, {key: record})


def update_one(
    tx: WriteTransaction,
    uuid: str,
    resource_class: str,
    record: InventoryRecord,
    *,
    generation: int,
    reserved_may_equal_total: bool,
) -> Provider:
    """Replace one inventory.

    :raises ProviderNotFound: the provider does not exist.
    :raises ConcurrentUpdate: `generation` is not the current one.
    :raises ReservedTooLarge: the record reserves too much.
    :raises ResourceClassNotFound: the class does not exist.
    :raises InventoryNotFound: the provider has no inventory of the class.
    """
    provider, old_inventories = _hold(tx, uuid, generation)
    _check_reserved(tx, uuid, resource_class, record, reserved_may_equal_total)
    key = (provider.id, class_ids(tx, [resource_class])[resource_class])
    if key not in old_inventories:
        raise InventoryNotFound(resource_class, uuid)
    bump(tx, provider)
    return _write(tx, provider, old_inventories, {key: record})


def delete_one(tx: WriteTransaction, uuid: str, resource_class: str) -> None:
    """Remove one inventory.

    :raises ProviderNotFound: the provider does not exist.
    :raises ResourceClassNotFound: the class does not exist.
    :raises InventoryInUse: the inventory has allocations.
    :raises InventoryNotFound: the provider has no inventory of the class.
    """
    provider, inventories = _hold(tx, uuid)
    inventory = inventories.get((provider.id, class_ids(tx, [resource_class])[resource_class]))
    if inventory is None:
        raise InventoryNotFound(resource_class, uuid)
    _remove(tx, provider, [inventory])


def delete_all(tx: WriteTransaction, uuid: str) -> None:
    """Remove all inventories.

    :raises ProviderNotFound: the provider does not exist.
    :raises InventoryInUse: some have allocations.
    """
    provider, inventories = _hold(tx, uuid)
    _remove(tx, provider, list(inventories.values()))


def _hold(
    tx: WriteTransaction, uuid: str, generation: int | None = None
) -> tuple[Provider, dict[Key, HeldInventory]]:
    """Lock the inventories of a provider, and return it as it is from then on."""
    inventories = inventory_rows.hold(tx, uuid)
    provider = provider_rows.get(tx, uuid)
    if generation is not None:
        provider_rows.require_generation(provider, generation)
    return provider, inventories


def _check_reserved(
    tx: WriteTransaction,
    uuid: str,
    resource_class: str,
    record: InventoryRecord,
    may_equal_total: bool,
) -> None:
    ratio = inventory_rows.stored_ratio(tx, record.allocation_ratio)
    if not reserved_is_valid(record.total, record.reserved, ratio, may_equal_total=may_equal_total):
        raise ReservedTooLarge(resource_class, uuid, may_equal_total)


def _remove(
    tx: WriteTransaction, provider: Provider, removed_inventories: list[HeldInventory]
) -> None:
    """Raise the generation, and remove inventories none of which is in use."""
    used_classes = sorted(inventory.class_id for inventory in removed_inventories if inventory.used)
    if used_classes:
        raise InventoryInUse(class_names(tx, used_classes), provider.uuid)
    bump(tx, provider)
    inventory_rows.remove(tx, removed_inventories)
    tx.touch([provider.root_id], STRUCTURE)


def _write(
    tx: WriteTransaction,
    provider: Provider,
    old_inventories: Mapping[Key, HeldInventory],
    new_records: Mapping[Key, InventoryRecord],
) -> Provider:
    """Write inventories once the generation is raised, and return the provider with it."""
    inventory_rows.write(tx, old_inventories, new_records)
    for key in old_inventories.keys() & new_records:
        record, used = new_records[key], old_inventories[key].used
        capacity = usable(record.total, record.reserved, record.allocation_ratio)
        if used and used > capacity:
            LOG.warning(
                "Provider %s is over capacity in %s after a change of its inventory: %d of %d are "
                "used. New claims are refused until allocations are deleted or moved.",
                provider.uuid,
                class_names(tx, [key[1]])[0],
                used,
                capacity,
            )
    tx.touch([provider.root_id], STRUCTURE)
    return provider_rows.get(tx, provider.uuid)
