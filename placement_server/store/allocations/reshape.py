"""The reshape: inventory moves between providers together with its allocations, at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from placement_server.store.allocations.claim_check import KnownInventory, RequestedAllocations
from placement_server.store.dialects.batches import InventoryUpdate
from placement_server.store.errors import (
    InventoryInUse,
    ReshapeGenerationConflict,
    ReshapeProviderNotFound,
)
from placement_server.store.providers import inventory_rows
from placement_server.store.providers.capacity import usable
from placement_server.store.providers.inventory_rows import HeldInventory
from placement_server.store.providers.providers import hold, raise_held
from placement_server.store.records import ConsumerWrite, InventoryRecord, Key
from placement_server.store.schema.names import class_names, hold_classes
from placement_server.store.transaction import (
    STRUCTURE,
    USAGE,
    LostRace,
    WriteTransaction,
)

_NAMED: Final = "SELECT uuid, id, generation FROM resource_providers WHERE uuid "

NewInventories = Mapping[str, tuple[int, Mapping[str, InventoryRecord]]]
"""Provider uuid -> (generation that the writer has read, the provider's whole new inventory)."""


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
    named_uuids = {*inventories, *(uuid for write in writes for uuid in write.allocations)}
    provider_rows = list(tx.rows_among(_NAMED, named_uuids))
    provider_ids = {uuid: provider_id for uuid, provider_id, _ in provider_rows}
    generations = {uuid: generation for uuid, _, generation in provider_rows}
    for uuid, (generation, _) in inventories.items():
        if uuid not in provider_ids:
            raise ReshapeProviderNotFound(uuid)
        stored_generation = generations[uuid]
        if stored_generation != generation:
            raise ReshapeGenerationConflict(uuid, stored_generation, generation)
    consumers.check_generations(seen_consumers)
    given_back = sum_of_old(seen_consumers)
    check_providers(seen_consumers, provider_ids)
    names = dict.fromkeys(name for _, records in inventories.values() for name in records)
    class_id = hold_classes(tx, names)
    class_id.require(names)
    requested_use = new_allocations(tx, seen_consumers, provider_ids, class_id)
    new_records = {
        (provider_ids[uuid], class_id[name]): record
        for uuid, (_, records) in inventories.items()
        for name, record in records.items()
    }

    # Before the inventories, in the order in which claims lock: one that waits for an inventory
    # has inserted its owners and its consumer already.
    replace_holdings(tx, seen_consumers, requested_use)

    # From here to the commit no other transaction claims from the providers concerned.
    listed_ids = {provider_ids[uuid] for uuid in inventories}
    allocated_ids = {*requested_use.provider_ids, *(key[0] for key in given_back)}
    stock = inventory_rows.hold_many(tx, listed_ids | allocated_ids)
    held_providers = hold(tx, listed_ids | allocated_ids)
    for uuid in inventories:
        now = held_providers.get(provider_ids[uuid])
        if now is None or now.generation != generations[uuid]:
            raise LostRace(f"Provider {uuid} changed meanwhile.", uuids=[uuid])
    if tx.past is not None:
        for provider_id, provider in held_providers.items():
            tx.past.know(provider_id, provider.uuid, provider.root_id)

    interim = _interim(tx, stock, new_records, requested_use, given_back)
    taken_amounts = claim_check.check(requested_use, interim, given_back)
    use_after = {
        key: inventory.used
        - given_back.get(key, 0)
        + (taken_amounts[key].total if key in taken_amounts else 0)
        for key, inventory in stock.items()
    }
    removed_keys = {key for key in stock if key[0] in listed_ids and key not in new_records}
    used_keys = [key for key in removed_keys if use_after[key]]
    for uuid in inventories:
        used_classes = [key[1] for key in used_keys if key[0] == provider_ids[uuid]]
        if used_classes:
            raise InventoryInUse(class_names(tx, sorted(used_classes)), uuid)

    raised_ids = raised_providers(seen_consumers, requested_use)
    stocked_ids = {key[0] for key in new_records}
    # by one each for allocations, an inventory added or changed, and the final inventory
    groups = (raised_ids, stocked_ids, listed_ids)
    raise_held(tx, {key: sum(key in ids for ids in groups) for key in held_providers})
    inventory_rows.remove(tx, [stock[key] for key in stock if key in removed_keys])
    inventory_rows.write(tx, stock, new_records)
    changes = [
        InventoryUpdate(inventory.id, *key, use_after[key] - inventory.used)
        for key, inventory in sorted(stock.items())
        if use_after[key] != inventory.used and key not in removed_keys
    ]
    if tx.batches.change_inventories(tx.connection, changes) != len(changes):
        raise LostRace("An inventory of the reshape changed although it was locked.")
    inventory_rows.require_none(tx, given_back.keys() - stock.keys() - new_records.keys())
    # the roots of now: a move does not raise the generation
    tx.touch({held_providers[key].root_id for key in listed_ids}, STRUCTURE)
    tx.touch({held_providers[key].root_id for key in held_providers.keys() & allocated_ids}, USAGE)


def _interim(
    tx: WriteTransaction,
    stock: Mapping[Key, HeldInventory],
    new_records: Mapping[Key, InventoryRecord],
    requested_use: RequestedAllocations,
    given_back: Mapping[Key, int],
) -> dict[Key, KnownInventory]:
    """Return the inventories that the new allocations are checked against.

    They are the old and the new ones; of both, the new one counts. One that is added is in use by
    the allocations without inventory that older software may have left.
    """
    added_amounts = {
        key: sum(amounts) for key, amounts in requested_use.amounts.items() if key not in stock
    }
    sums = inventory_rows.sum_allocations(tx, added_amounts)
    interim = {
        key: KnownInventory(
            held.id, held.min_unit, held.max_unit, held.step_size, held.capacity, held.used
        )
        for key, held in stock.items()
    }
    for key, record in new_records.items():
        inventory_id, used = (stock[key].id, stock[key].used) if key in stock else (0, 0)
        if key in added_amounts:
            used = sums[key] - added_amounts[key] + given_back.get(key, 0)
        ratio = inventory_rows.stored_ratio(tx, record.allocation_ratio)
        interim[key] = KnownInventory(
            inventory_id,
            record.min_unit,
            record.max_unit,
            record.step_size,
            usable(record.total, record.reserved, ratio),
            used,
        )
    return interim
