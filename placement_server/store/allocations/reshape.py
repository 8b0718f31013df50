"""Moving inventory between providers together with the allocations against it, at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from sqlalchemy import bindparam

from placement_server.store.allocations import claim_check, consumers
from placement_server.store.allocations.allocations import (
    check_providers,
    new_allocations,
    raised_providers,
    replace_holdings,
    sum_of_old,
)
from placement_server.store.allocations.claim_check import Asked, Key, KnownInventory, Taken
from placement_server.store.allocations.write_context import look
from placement_server.store.dialects import InventoryChange
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
from placement_server.store.transactions.retry import LostRace
from placement_server.store.transactions.transaction import (
    STRUCTURE,
    USAGE,
    ReadTransaction,
    WriteTransaction,
)

Wanted = Mapping[str, tuple[int, Mapping[str, InventoryRecord]]]
"""Provider uuid -> (generation the writer has seen, the provider's whole new inventory)."""

_BY_UUID: Final = SELECT_PROVIDERS.where(PROVIDER.c.uuid.in_(bindparam("uuids", expanding=True)))
_BY_ID: Final = SELECT_PROVIDERS.where(PROVIDER.c.id.in_(bindparam("ids", expanding=True)))


def apply(tx: WriteTransaction, inventories: Wanted, writes: Sequence[ConsumerWrite]) -> None:
    """Give the listed providers exactly these inventories, the consumers exactly these allocations.

    The allocations are checked against old and new inventories together, new ones counting.

    Raises, in this order: ReshapeProviderNotFound or ReshapeGenerationConflict for the first
    provider concerned; ConsumerGenerationConflict; ProviderNotFound; ResourceClassNotFound;
    InvalidInventoryForAllocation, ConstraintViolated or CapacityExceeded; InventoryInUse.
    """
    consumers.lock(tx, writes)
    seen = look(tx, writes, providers=False).consumers
    listed = _listed(tx, inventories)
    consumers.check_generations(seen)
    given_back = sum_of_old(seen)
    named = _providers(tx, {uuid for write in writes for uuid in write.allocations})
    provider_ids = {uuid: provider.id for uuid, provider in (named | listed).items()}
    check_providers(seen, provider_ids)
    names = dict.fromkeys(name for _, records in inventories.values() for name in records)
    class_id = hold_classes(tx, names)
    class_id.require(names)
    asked = new_allocations(tx, seen, provider_ids)
    wanted = {
        listed[uuid].id: {class_id[name]: record for name, record in records.items()}
        for uuid, (_, records) in inventories.items()
    }

    # Before the inventories, in the order in which claims lock: one that waits for an inventory
    # has inserted its owners and its consumer already.
    replace_holdings(tx, seen, asked)

    # From here to the commit nobody claims from the providers concerned.
    ids = {*wanted, *(one.provider_id for one in asked), *(key[0] for key in given_back)}
    stock = inventory_rows.hold_many(tx, ids)
    rows = tx.execute_among(_BY_ID, "ids", ids)
    providers = {row[0]: provider_of(row) for row in rows}
    for provider in listed.values():
        now = providers.get(provider.id)
        if now is None or now.generation != provider.generation:
            raise LostRace(f"Provider {provider.uuid} changed meanwhile.", uuids=[provider.uuid])

    before = _use_before(tx, stock, asked, given_back)
    taken = claim_check.check(asked, _interim(tx, stock, wanted, before), given_back)
    after = _use_after(stock, taken, given_back)
    for uuid, provider in listed.items():
        gone = [
            key[1]
            for key in stock
            if key[0] == provider.id and key[1] not in wanted[provider.id] and after[key]
        ]
        if gone:
            raise InventoryInUse(class_names(tx, sorted(gone)), uuid)

    _raise_generations(tx, providers, wanted, raised_providers(seen, asked))
    inventory_rows.remove(
        tx,
        [
            inventory
            for (provider_id, class_id_), inventory in stock.items()
            if provider_id in wanted and class_id_ not in wanted[provider_id]
        ],
    )
    for provider_id in sorted(wanted):
        inventory_rows.write(
            tx,
            provider_id,
            {key[1]: inventory for key, inventory in stock.items() if key[0] == provider_id},
            wanted[provider_id],
        )
    _move_use(tx, stock, wanted, after)
    inventory_rows.require_none(
        tx, [key for key in given_back if key not in stock and key[1] not in wanted.get(key[0], ())]
    )
    listed_roots = {provider.root_id for provider in listed.values()}
    tx.touch(listed_roots, STRUCTURE)
    tx.touch({provider.root_id for provider in providers.values()} - listed_roots, USAGE)


def _listed(tx: WriteTransaction, inventories: Wanted) -> dict[str, Provider]:
    """The providers whose inventory is replaced, generations checked in the order given."""
    found = _providers(tx, set(inventories))
    for uuid, (generation, _) in inventories.items():
        if uuid not in found:
            raise ReshapeProviderNotFound(uuid)
        if found[uuid].generation != generation:
            raise ReshapeGenerationConflict(uuid, found[uuid].generation, generation)
    return {uuid: found[uuid] for uuid in inventories}


def _providers(tx: ReadTransaction, uuids: Collection[str]) -> dict[str, Provider]:
    rows = tx.execute_among(_BY_UUID, "uuids", uuids)
    return {row[1]: provider_of(row) for row in rows}


def _use_before(
    tx: WriteTransaction,
    stock: Mapping[Key, HeldInventory],
    asked: Sequence[Asked],
    given_back: Mapping[Key, int],
) -> dict[Key, int]:
    """What was allocated, before this reshape, of the inventories that it needs and that are not
    there yet: older software may have left something."""
    new: dict[Key, int] = {}
    for one in asked:
        key = (one.provider_id, one.class_id)
        if key not in stock:
            new[key] = new.get(key, 0) + one.amount
    sums = inventory_rows.allocated(tx, new)
    return {key: sums[key] - amount + given_back.get(key, 0) for key, amount in new.items()}


def _interim(
    tx: WriteTransaction,
    stock: Mapping[Key, HeldInventory],
    wanted: Mapping[int, Mapping[int, InventoryRecord]],
    before: Mapping[Key, int],
) -> dict[Key, claim_check.Inventory]:
    """The inventories that the new allocations are checked against: old and new, new ones
    counting."""
    interim: dict[Key, claim_check.Inventory] = dict(stock)
    for provider_id, records in wanted.items():
        for class_id, record in records.items():
            old = stock.get((provider_id, class_id))
            interim[provider_id, class_id] = KnownInventory(
                0 if old is None else old.id,
                record.min_unit,
                record.max_unit,
                record.step_size,
                usable(
                    record.total,
                    record.reserved,
                    inventory_rows.stored_ratio(tx, record.allocation_ratio),
                ),
                before.get((provider_id, class_id), 0) if old is None else old.used,
            )
    return interim


def _use_after(
    stock: Mapping[Key, HeldInventory], taken: Mapping[Key, Taken], given_back: Mapping[Key, int]
) -> dict[Key, int]:
    """The use of each held inventory once the allocations have moved."""
    return {
        key: inventory.used - given_back.get(key, 0) + (taken[key].total if key in taken else 0)
        for key, inventory in stock.items()
    }


def _move_use(
    tx: WriteTransaction,
    stock: Mapping[Key, HeldInventory],
    wanted: Mapping[int, Mapping[int, InventoryRecord]],
    after: Mapping[Key, int],
) -> None:
    """Set the use of the inventories that were there before and stay."""
    changes = [
        InventoryChange(inventory.id, *key, after[key] - inventory.used)
        for key, inventory in sorted(stock.items())
        if after[key] != inventory.used and (key[0] not in wanted or key[1] in wanted[key[0]])
    ]
    if tx.batches.change_inventories(tx.connection, changes) != len(changes):
        raise LostRace("An inventory of the reshape changed although it was held.")


def _raise_generations(
    tx: WriteTransaction,
    providers: Mapping[int, Provider],
    wanted: Mapping[int, Mapping[int, InventoryRecord]],
    allocated: Collection[int],
) -> None:
    """One for inventory added or changed, one for allocations, one for the final inventory."""
    for provider_id, provider in sorted(providers.items()):
        steps = int(provider_id in allocated)
        if provider_id in wanted:
            steps += 1 + bool(wanted[provider_id])
        bump(tx, provider, by=steps)
