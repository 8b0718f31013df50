"""Allocations: who holds what, and changing it.

A write replaces all allocations of the consumers it names, in one transaction:

1. lock the consumers' records when there are several (they are rarely wanted by two writers);
2. read consumers, what they hold, providers and inventories in one statement; check, and refuse
   what does not fit;
3. write consumers and allocations, the consumers only if they still are as they were read;
4. add to the use of the inventories, each only where it still fits: here, late, the contended
   rows are locked, in the order of (provider id, class id); raise the providers' generations, in
   the order of their ids; append to the changes; commit.

Allocations that have no inventory, left by older software, are given back to none; where there are
such, it is asked under the locks of 4 whether there is an inventory now.

When a condition of 3 or 4 does not hold any more, something changed since 2: roll back, and begin
anew. No generation of a provider is compared, so writers of one provider wait for each other only
from 4 to the commit, and none has to try again while there is room.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from placement_server.store.allocations import claim_check, consumers
from placement_server.store.allocations.allocation_rows import of_consumer, of_provider
from placement_server.store.allocations.claim_check import Asked, Key
from placement_server.store.allocations.consumers import SeenConsumer
from placement_server.store.allocations.write_context import Scene, look
from placement_server.store.dialects import Insertion, Rise
from placement_server.store.errors import NoAllocations, ProviderNotFound, listed
from placement_server.store.providers import inventory_rows
from placement_server.store.records import ANY, ConsumerWrite
from placement_server.store.schema.names import class_ids
from placement_server.store.transactions.retry import LostRace
from placement_server.store.transactions.transaction import WriteTransaction

__all__ = ["delete", "of_consumer", "of_provider", "write"]

# How many inventories or providers an error names.
_SHOWN: Final = 8
_COLUMNS: Final = (
    ("resource_provider_id", "int"),
    ("consumer_id", "text"),
    ("resource_class_id", "int"),
    ("used", "int"),
)


def write(tx: WriteTransaction, writes: Sequence[ConsumerWrite]) -> None:
    """Give each consumer exactly its new allocations.

    Raises, in this order: ConsumerGenerationConflict, ProviderNotFound, ResourceClassNotFound,
    InvalidInventoryForAllocation, ConstraintViolated, CapacityExceeded.
    """
    if len(writes) > 1:
        consumers.lock(tx, writes)
    scene = look(tx, writes)
    consumers.check_generations(scene.consumers)
    _apply(tx, scene, raise_emptied=True)


def delete(tx: WriteTransaction, consumer_uuid: str) -> None:
    """Take everything from a consumer and end it; no provider's generation rises.

    Raises NoAllocations.
    """
    scene = look(tx, [ConsumerWrite(consumer_uuid, {}, "", "", expected_generation=ANY)])
    if not scene.consumers[0].old:
        raise NoAllocations(consumer_uuid)
    _apply(tx, scene, raise_emptied=False)


def _apply(tx: WriteTransaction, scene: Scene, *, raise_emptied: bool) -> None:
    given_back = sum_of_old(scene.consumers)
    check_providers(scene.consumers, scene.provider_ids)
    asked = new_allocations(tx, scene.consumers, scene.provider_ids)
    taken = claim_check.check(asked, scene.inventories, given_back)

    replace_holdings(tx, scene.consumers, asked)

    if not scene.root_ids:
        return
    raised = raised_providers(scene.consumers, asked, emptied_too=raise_emptied)
    rises = [Rise(one, root, one in raised) for one, root in sorted(scene.root_ids.items())]
    wanted = claim_check.changes(taken, scene.inventories, given_back)
    settled = tx.settle(wanted, rises)
    if settled.applied != len(wanted):
        raise LostRace(
            f"An inventory of the request changed since it was checked: {_named(scene, asked)}.",
            uuids=list(scene.provider_ids),
        )
    if settled.found != len(rises):
        raise LostRace(
            "A provider of the request moved or was deleted since it was read: "
            f"{listed(scene.provider_ids, _SHOWN)}.",
            uuids=list(scene.provider_ids),
        )
    inventory_rows.require_none(tx, given_back.keys() - scene.inventories.keys())


def _named(scene: Scene, asked: Sequence[Asked]) -> str:
    """Which inventories it was about; those only given back to are named by their provider."""
    names = {f"{one.resource_class} of {one.provider_uuid}": None for one in asked}
    claimed = {one.provider_uuid for one in asked}
    return listed([*names, *(uuid for uuid in scene.provider_ids if uuid not in claimed)], _SHOWN)


def sum_of_old(seen: Sequence[SeenConsumer]) -> dict[Key, int]:
    """What the consumers have now, by inventory."""
    sums: dict[Key, int] = {}
    for consumer in seen:
        for provider_id, class_id, used in consumer.old:
            key = (provider_id, class_id)
            sums[key] = sums.get(key, 0) + used
    return sums


def check_providers(seen: Sequence[SeenConsumer], provider_ids: Mapping[str, int]) -> None:
    """Raises ProviderNotFound for the first provider of the request that does not exist."""
    for consumer in seen:
        for uuid in consumer.write.allocations:
            if uuid not in provider_ids:
                raise ProviderNotFound(uuid)


def new_allocations(
    tx: WriteTransaction, seen: Sequence[SeenConsumer], provider_ids: Mapping[str, int]
) -> list[Asked]:
    """All new allocations in the order of the request. Raises ResourceClassNotFound."""
    names: dict[str, None] = {}
    for consumer in seen:
        for amounts in consumer.write.allocations.values():
            names.update(dict.fromkeys(amounts))
    ids = class_ids(tx, list(names))
    return [
        Asked(consumer.write.uuid, uuid, provider_ids[uuid], name, ids[name], amount)
        for consumer in seen
        for uuid, amounts in consumer.write.allocations.items()
        for name, amount in amounts.items()
    ]


def raised_providers(
    seen: Sequence[SeenConsumer], asked: Sequence[Asked], *, emptied_too: bool = True
) -> set[int]:
    """Ids of the providers whose generation rises: those named, and those that a consumer with
    an empty set leaves."""
    raised = {one.provider_id for one in asked}
    if emptied_too:
        for consumer in seen:
            if not consumer.write.allocations:
                raised.update(provider_id for provider_id, _, _ in consumer.old)
    return raised


def replace_holdings(
    tx: WriteTransaction, seen: Sequence[SeenConsumer], asked: Sequence[Asked]
) -> None:
    """Write consumers and their allocations; inventories are not touched here. Raises LostRace."""
    new = consumers.store_records(tx, seen)
    consumers.delete_allocations(tx, seen)
    rows = [(one.provider_id, one.consumer_uuid, one.class_id, one.amount) for one in asked]
    tx.batches.insert(tx.connection, [new, Insertion("allocations", _COLUMNS, rows)], tx.now)
