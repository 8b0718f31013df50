"""Inventories: what a provider has of each resource class.

Every change holds the provider's inventories first, so that no claim happens in the middle, and
raises the provider's generation then, as claims do. That locks the provider, and only under this
lock an inventory is added (``inventory_rows.write`` says why). Before all of that, whatever may
add an inventory holds its class.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from placement_server.store.errors import (
    ConcurrentUpdate,
    InventoryExists,
    InventoryInUse,
    InventoryNotFound,
    ReservedTooLarge,
)
from placement_server.store.providers import inventory_rows, provider_rows
from placement_server.store.providers.capacity import reserved_is_valid, usable
from placement_server.store.providers.inventory_rows import HeldInventory
from placement_server.store.providers.providers import bump
from placement_server.store.records import InventoryRecord, Provider, StoredInventory
from placement_server.store.schema.names import class_ids, class_names, hold_classes
from placement_server.store.transactions.transaction import (
    STRUCTURE,
    ReadTransaction,
    WriteTransaction,
)

LOG = logging.getLogger(__name__)


def of_provider(tx: ReadTransaction, uuid: str) -> tuple[Provider, dict[str, StoredInventory]]:
    """The provider with all its inventories by class name. Raises ProviderNotFound."""
    return inventory_rows.of_provider(tx, uuid)


def get(tx: ReadTransaction, uuid: str, resource_class: str) -> tuple[Provider, StoredInventory]:
    """One inventory with its provider. Raises ProviderNotFound or InventoryNotFound."""
    provider = provider_rows.get(tx, uuid)
    inventory = inventory_rows.one(tx, provider.id, resource_class)
    if inventory is None:
        raise InventoryNotFound(resource_class, uuid)
    return provider, inventory


def replace(
    tx: WriteTransaction,
    uuid: str,
    *,
    generation: int,
    records: Mapping[str, InventoryRecord],
    reserved_may_equal_total: bool,
) -> tuple[Provider, dict[str, StoredInventory]]:
    """Make ``records`` the whole inventory of the provider; the generation rises always.

    Raises ProviderNotFound, ConcurrentUpdate when ``generation`` is not the current one,
    ReservedTooLarge, ResourceClassNotFound, InventoryInUse.
    """
    ids = hold_classes(tx, records)
    held = inventory_rows.hold(tx, uuid)
    provider = provider_rows.get(tx, uuid)
    _check_generation(provider, generation)
    for resource_class, record in records.items():
        _check_reserved(tx, uuid, resource_class, record, reserved_may_equal_total)
    ids.require(records)
    wanted = {ids[resource_class]: record for resource_class, record in records.items()}
    gone = [inventory for class_id, inventory in held.items() if class_id not in wanted]
    _refuse_if_used(tx, uuid, gone)
    bump(tx, provider)
    inventory_rows.remove(tx, gone)
    inventory_rows.write(tx, provider.id, held, wanted)
    _warn_of_overuse(tx, uuid, held, wanted)
    return _changed(tx, provider)


def add(
    tx: WriteTransaction,
    uuid: str,
    resource_class: str,
    record: InventoryRecord,
    *,
    reserved_may_equal_total: bool,
) -> tuple[Provider, StoredInventory]:
    """Give the provider an inventory of one more class.

    Raises ProviderNotFound, ReservedTooLarge, ResourceClassNotFound, InventoryExists.
    """
    ids = hold_classes(tx, [resource_class])
    held = inventory_rows.hold(tx, uuid)
    provider = provider_rows.get(tx, uuid)
    _check_reserved(tx, uuid, resource_class, record, reserved_may_equal_total)
    ids.require([resource_class])
    class_id = ids[resource_class]
    if class_id in held:
        raise InventoryExists(resource_class, uuid)
    bump(tx, provider)
    inventory_rows.write(tx, provider.id, held, {class_id: record})
    provider, inventories = _changed(tx, provider)
    return provider, inventories[resource_class]


def update_one(
    tx: WriteTransaction,
    uuid: str,
    resource_class: str,
    record: InventoryRecord,
    *,
    generation: int,
    reserved_may_equal_total: bool,
) -> tuple[Provider, StoredInventory]:
    """Replace one inventory.

    Raises ProviderNotFound, ConcurrentUpdate when ``generation`` is not the current one,
    ReservedTooLarge, ResourceClassNotFound, InventoryNotFound.
    """
    held = inventory_rows.hold(tx, uuid)
    provider = provider_rows.get(tx, uuid)
    _check_generation(provider, generation)
    _check_reserved(tx, uuid, resource_class, record, reserved_may_equal_total)
    class_id = class_ids(tx, [resource_class])[resource_class]
    if class_id not in held:
        raise InventoryNotFound(resource_class, uuid)
    wanted = {class_id: record}
    bump(tx, provider)
    inventory_rows.write(tx, provider.id, held, wanted)
    _warn_of_overuse(tx, uuid, held, wanted)
    provider, inventories = _changed(tx, provider)
    return provider, inventories[resource_class]


def delete_one(tx: WriteTransaction, uuid: str, resource_class: str) -> None:
    """Remove one inventory.

    Raises ProviderNotFound, ResourceClassNotFound, InventoryInUse, InventoryNotFound.
    """
    held = inventory_rows.hold(tx, uuid)
    provider = provider_rows.get(tx, uuid)
    inventory = held.get(class_ids(tx, [resource_class])[resource_class])
    if inventory is None:
        raise InventoryNotFound(resource_class, uuid)
    _refuse_if_used(tx, uuid, [inventory])
    bump(tx, provider)
    inventory_rows.remove(tx, [inventory])
    tx.touch([provider.root_id], STRUCTURE)


def delete_all(tx: WriteTransaction, uuid: str) -> None:
    """Remove all inventories. Raises ProviderNotFound, InventoryInUse."""
    held = inventory_rows.hold(tx, uuid)
    provider = provider_rows.get(tx, uuid)
    _refuse_if_used(tx, uuid, list(held.values()))
    bump(tx, provider)
    inventory_rows.remove(tx, held.values())
    tx.touch([provider.root_id], STRUCTURE)


def _changed(
    tx: WriteTransaction, provider: Provider
) -> tuple[Provider, dict[str, StoredInventory]]:
    tx.touch([provider.root_id], STRUCTURE)
    return of_provider(tx, provider.uuid)


def _check_generation(provider: Provider, generation: int) -> None:
    if provider.generation != generation:
        raise ConcurrentUpdate(
            f"The inventories of provider {provider.uuid} cannot be changed: it has generation "
            f"{provider.generation}, the request was made for {generation}; read it again.",
            uuids=[provider.uuid],
        )


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


def _refuse_if_used(tx: WriteTransaction, uuid: str, gone: list[HeldInventory]) -> None:
    used = sorted(inventory.class_id for inventory in gone if inventory.used)
    if used:
        raise InventoryInUse(class_names(tx, used), uuid)


def _warn_of_overuse(
    tx: WriteTransaction,
    uuid: str,
    held: Mapping[int, HeldInventory],
    wanted: Mapping[int, InventoryRecord],
) -> None:
    for class_id, record in wanted.items():
        old = held.get(class_id)
        if old is None or not old.used:
            continue
        capacity = usable(record.total, record.reserved, record.allocation_ratio)
        if old.used > capacity:
            LOG.warning(
                "Provider %s is over capacity in %s: %d used of %d; new claims are refused until "
                "allocations go.",
                uuid,
                class_names(tx, [class_id])[0],
                old.used,
                capacity,
            )
