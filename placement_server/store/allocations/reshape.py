"""The reshape: inventory moves between providers together with its allocations, at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from placement_server.store.allocations import claim_check, consumers
from placement_server.store.allocations.allocations import (
    check_providers,
    new_allocations,
    raised_providers,
    read_context,
    replace_holdings,
    sum_of_old,
)
from placement_server.store.allocations.claim_check import AmountSummary, Key, KnownInventory
from placement_server.store.dialects.among import among
from placement_server.store.dialects.batches import InventoryUpdate
from placement_server.store.errors import (
    InventoryInUse,
    ReshapeGenerationConflict,
    ReshapeProviderNotFound,
)
from placement_server.store.providers import inventory_rows
from placement_server.store.providers.capacity import usable
from placement_server.store.providers.inventory_rows import HeldInventory
from placement_server.store.providers.provider_rows import PROVIDER, SELECT_PROVIDERS, provider_of
from placement_server.store.providers.providers import bump
from placement_server.store.records import ConsumerWrite, InventoryRecord, Provider
from placement_server.store.schema.names import class_names, hold_classes
from placement_server.store.transaction import (
    STRUCTURE,
    USAGE,
    LostRace,
    ReadTransaction,
    WriteTransaction,
)

NewInventories = Mapping[str, tuple[int, Mapping[str, InventoryRecord]]]
"""Provider uuid -> (generation that the writer has read, the provider's whole new inventory)."""

_BY_UUID: Final = SELECT_PROVIDERS.where(among(PROVIDER.c.uuid, "uuids"))
_BY_ID: Final = SELECT_PROVIDERS.where(among(PROVIDER.c.id, "ids"))


def apply(
    tx: WriteTransaction, inventories: NewInventories, writes: Sequence[ConsumerWrite]
) -> None:
    """Give the listed providers exactly these inventories, the consumers exactly these allocations.

    The allocations are checked against old and new inventories together; of both, the new one
    counts. The errors are raised in this order.

    :raises ReshapeProviderNotFound: a provider to change does not exist.
    :raises ReshapeGenerationConflict: a provider's generation is not the expected one.
    :raises ConsumerGenerationConflict: a consumer's generation is not the expected one.
    :raises ProviderNotFound: a provider of the allocations does not exist.
    :raises ResourceClassNotFound: classes do not exist.
    :raises AllocationRefused: an allocation is not possible.
    :raises InventoryInUse: inventories to remove would be in use.
    """
    consumers.lock(tx, writes)
    seen_consumers = read_context(tx, writes, providers=False).consumers
    listed_inventories = _providers_to_change(tx, inventories)
    consumers.check_generations(seen_consumers)
    given_back = sum_of_old(seen_consumers)
    named_providers = _providers(tx, {uuid for write in writes for uuid in write.allocations})
    provider_ids = {
        uuid: provider.id for uuid, provider in (named_providers | listed_inventories).items()
    }
    check_providers(seen_consumers, provider_ids)
    names = dict.fromkeys(name for _, records in inventories.values() for name in records)
    class_id = hold_classes(tx, names)
    class_id.require(names)
    requested_use = new_allocations(tx, seen_consumers, provider_ids)
    new_records = {
        listed_inventories[uuid].id: {class_id[name]: record for name, record in records.items()}
        for uuid, (_, records) in inventories.items()
    }

    # Before the inventories, in the order in which claims lock: one that waits for an inventory
    # has inserted its owners and its consumer already.
    replace_holdings(tx, seen_consumers, requested_use)

    # From here to the commit no other transaction claims from the providers concerned.
    allocated_ids = {*requested_use.provider_ids, *(key[0] for key in given_back)}
    ids = new_records.keys() | allocated_ids
    stock = inventory_rows.hold_many(tx, ids)
    rows = tx.execute_among(_BY_ID, "ids", ids)
    providers = {row[0]: provider_of(row) for row in rows}
    _require_unchanged(listed_inventories, providers)

    before = _use_before(tx, stock, requested_use.amounts, given_back)
    interim = _interim(tx, stock, new_records, before)
    taken_amounts = claim_check.check(requested_use, interim, given_back)
    after = _use_after(stock, taken_amounts, given_back)
    _refuse_used(tx, listed_inventories, new_records, after)

    _raise_generations(tx, providers, new_records, raised_providers(seen_consumers, requested_use))
    _replace_inventories(tx, stock, new_records)
    _move_use(tx, stock, new_records, after)
    inventory_rows.require_none(
        tx,
        [
            key
            for key in given_back
            if key not in stock and key[1] not in new_records.get(key[0], ())
        ],
    )
    tx.touch({provider.root_id for provider in listed_inventories.values()}, STRUCTURE)
    tx.touch(
        {provider.root_id for key, provider in providers.items() if key in allocated_ids}, USAGE
    )


def _providers_to_change(tx: WriteTransaction, inventories: NewInventories) -> dict[str, Provider]:
    """Return the providers whose inventory is replaced; check generations in the order given."""
    providers = _providers(tx, set(inventories))
    for uuid, (generation, _) in inventories.items():
        if uuid not in providers:
            raise ReshapeProviderNotFound(uuid)
        if providers[uuid].generation != generation:
            raise ReshapeGenerationConflict(uuid, providers[uuid].generation, generation)
    return {uuid: providers[uuid] for uuid in inventories}


def _providers(tx: ReadTransaction, uuids: Collection[str]) -> dict[str, Provider]:
    rows = tx.execute_among(_BY_UUID, "uuids", uuids)
    return {row[1]: provider_of(row) for row in rows}


def _require_unchanged(
    listed_inventories: Mapping[str, Provider], providers: Mapping[int, Provider]
) -> None:
    """Check that the providers are still as they were before they were locked."""
    for provider in listed_inventories.values():
        now = providers.get(provider.id)
        if now is None or now.generation != provider.generation:
            raise LostRace(f"Provider {provider.uuid} changed meanwhile.", uuids=[provider.uuid])


def _refuse_used(
    tx: ReadTransaction,
    listed_inventories: Mapping[str, Provider],
    new_records: Mapping[int, Mapping[int, InventoryRecord]],
    after: Mapping[Key, int],
) -> None:
    """Refuse to remove an inventory that would be in use.

    :param after: the use of each held inventory once the allocations have moved.
    """
    for uuid, provider in listed_inventories.items():
        used_classes = [
            class_id
            for (provider_id, class_id), use in after.items()
            if use and provider_id == provider.id and class_id not in new_records[provider_id]
        ]
        if used_classes:
            raise InventoryInUse(class_names(tx, sorted(used_classes)), uuid)


def _replace_inventories(
    tx: WriteTransaction,
    stock: Mapping[Key, HeldInventory],
    new_records: Mapping[int, Mapping[int, InventoryRecord]],
) -> None:
    """Remove, change and add records until the listed providers have exactly the new ones."""
    inventory_rows.remove(
        tx,
        [
            inventory
            for (provider_id, class_id), inventory in stock.items()
            if provider_id in new_records and class_id not in new_records[provider_id]
        ],
    )
    inventory_rows.write_many(
        tx,
        stock,
        {
            (provider_id, class_id): record
            for provider_id, records in new_records.items()
            for class_id, record in records.items()
        },
    )


def _use_before(
    tx: WriteTransaction,
    stock: Mapping[Key, HeldInventory],
    requested_amounts: Mapping[Key, Sequence[int]],
    given_back: Mapping[Key, int],
) -> dict[Key, int]:
    """Return what was allocated, before this reshape, of the inventories that it adds.

    Older software may have left allocations without inventory.
    """
    added_amounts = {
        key: sum(amounts) for key, amounts in requested_amounts.items() if key not in stock
    }
    sums = inventory_rows.sum_allocations(tx, added_amounts)
    return {
        key: sums[key] - amount + given_back.get(key, 0) for key, amount in added_amounts.items()
    }


def _interim(
    tx: WriteTransaction,
    stock: Mapping[Key, HeldInventory],
    new_records: Mapping[int, Mapping[int, InventoryRecord]],
    before: Mapping[Key, int],
) -> dict[Key, KnownInventory]:
    """Return the inventories that the new allocations are checked against.

    They are the old and the new ones; of both, the new one counts.
    """
    interim = {key: _known(inventory) for key, inventory in stock.items()}
    for provider_id, records in new_records.items():
        for class_id, record in records.items():
            old_inventory = stock.get((provider_id, class_id))
            interim[provider_id, class_id] = KnownInventory(
                0 if old_inventory is None else old_inventory.id,
                record.min_unit,
                record.max_unit,
                record.step_size,
                usable(
                    record.total,
                    record.reserved,
                    inventory_rows.stored_ratio(tx, record.allocation_ratio),
                ),
                before.get((provider_id, class_id), 0)
                if old_inventory is None
                else old_inventory.used,
            )
    return interim


def _known(held: HeldInventory) -> KnownInventory:
    units = held.min_unit, held.max_unit, held.step_size
    return KnownInventory(held.id, *units, held.capacity, held.used)


def _use_after(
    stock: Mapping[Key, HeldInventory],
    taken_amounts: Mapping[Key, AmountSummary],
    given_back: Mapping[Key, int],
) -> dict[Key, int]:
    """Return the use of each held inventory once the allocations have moved."""
    return {
        key: inventory.used
        - given_back.get(key, 0)
        + (taken_amounts[key].total if key in taken_amounts else 0)
        for key, inventory in stock.items()
    }


def _move_use(
    tx: WriteTransaction,
    stock: Mapping[Key, HeldInventory],
    new_records: Mapping[int, Mapping[int, InventoryRecord]],
    after: Mapping[Key, int],
) -> None:
    """Set the use of the inventories that existed before and stay."""
    changes = [
        InventoryUpdate(inventory.id, *key, after[key] - inventory.used)
        for key, inventory in sorted(stock.items())
        if after[key] != inventory.used
        and (key[0] not in new_records or key[1] in new_records[key[0]])
    ]
    if tx.batches.change_inventories(tx.connection, changes) != len(changes):
        raise LostRace("An inventory of the reshape changed although it was locked.")


def _raise_generations(
    tx: WriteTransaction,
    providers: Mapping[int, Provider],
    new_records: Mapping[int, Mapping[int, InventoryRecord]],
    allocated_ids: Collection[int],
) -> None:
    """Raise by one each for an added or changed, for allocations, and for the final inventory."""
    for provider_id, provider in sorted(providers.items()):
        steps = int(provider_id in allocated_ids)
        if provider_id in new_records:
            steps += 1 + bool(new_records[provider_id])
        bump(tx, provider, by=steps)
