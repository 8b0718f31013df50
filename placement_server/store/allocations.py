"""Allocations: who holds what, and changing it.

A write replaces all allocations of the consumers it names, in one transaction:

1. lock the consumers' records (they are rarely wanted by two writers), read what they hold;
2. read providers and inventories without a lock, check, and refuse what does not fit;
3. write allocations and consumers;
4. add to the use of the inventories, each only where it still fits: here, late, the contended
   rows are locked, in the order of (provider id, class id);
5. raise the providers' generations, in the order of their ids; append to the changes; commit.

When a condition of 4 or 5 does not hold any more, something changed since 2: roll back, and
begin anew. No generation is compared, so writers of one provider wait for each other only from 4
to the commit, and none has to try again while there is room.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from sqlalchemy import bindparam, or_, select

from placement_server.store import claims, consumers
from placement_server.store.allocation_rows import of_consumer, of_provider
from placement_server.store.claims import Asked, Key
from placement_server.store.consumers import HeldConsumer
from placement_server.store.errors import NoAllocations, ProviderNotFound
from placement_server.store.names import class_ids
from placement_server.store.records import ANY, ConsumerWrite
from placement_server.store.retry import LostRace
from placement_server.store.tables import inventories, resource_providers
from placement_server.store.transaction import USAGE, WriteTransaction

__all__ = ["delete", "of_consumer", "of_provider", "write"]

_P: Final = resource_providers.c
_I: Final = inventories.c
_PROVIDERS: Final = select(
    _P.id,
    _P.uuid,
    _P.root_provider_id,
    _I.id,
    _I.resource_class_id,
    _I.min_unit,
    _I.max_unit,
    _I.step_size,
    _I.capacity,
    _I.used,
).select_from(resource_providers.outerjoin(inventories, _I.resource_provider_id == _P.id))
_BY_UUID: Final = _PROVIDERS.where(_P.uuid.in_(bindparam("uuids", expanding=True)))
_BY_ID: Final = _PROVIDERS.where(_P.id.in_(bindparam("ids", expanding=True)))
_BY_EITHER: Final = _PROVIDERS.where(
    or_(
        _P.uuid.in_(bindparam("uuids", expanding=True)),
        _P.id.in_(bindparam("ids", expanding=True)),
    )
)
_COLUMNS: Final = (
    ("resource_provider_id", "int"),
    ("consumer_id", "text"),
    ("resource_class_id", "int"),
    ("used", "int"),
)


class SeenInventory(NamedTuple):
    """An inventory as it was read, not locked."""

    id: int
    min_unit: int
    max_unit: int
    step_size: int
    capacity: int
    used: int


class Scene(NamedTuple):
    """The providers that a write touches: ids by uuid, root ids by id, and their inventories."""

    provider_ids: dict[str, int]
    root_ids: dict[int, int]
    inventories: dict[Key, SeenInventory]


def write(tx: WriteTransaction, writes: Sequence[ConsumerWrite]) -> None:
    """Give each consumer exactly its new allocations.

    Raises, in this order: ConsumerGenerationConflict, ProviderNotFound, ResourceClassNotFound,
    InvalidInventoryForAllocation, ConstraintViolated, CapacityExceeded.
    """
    held = consumers.hold(tx, writes)
    consumers.check_generations(held)
    _apply(tx, held, raise_emptied=True)


def delete(tx: WriteTransaction, consumer_uuid: str) -> None:
    """Take everything from a consumer and end it; no provider's generation rises.

    Raises NoAllocations.
    """
    held = consumers.hold(tx, [ConsumerWrite(consumer_uuid, {}, "", "", expected_generation=ANY)])
    if not held[0].old:
        raise NoAllocations(consumer_uuid)
    _apply(tx, held, raise_emptied=False)


def _apply(tx: WriteTransaction, held: Sequence[HeldConsumer], *, raise_emptied: bool) -> None:
    given_back = sum_of_old(held)
    scene = _look(tx, held, given_back)
    check_providers(held, scene.provider_ids)
    asked = new_allocations(tx, held, scene.provider_ids)
    taken = claims.check(asked, scene.inventories, given_back)

    consumers.delete_allocations(tx, held)
    consumers.store_records(tx, held)
    insert_allocations(tx, asked)

    wanted = claims.changes(taken, scene.inventories, given_back)
    if tx.batches.change_inventories(tx.connection, wanted) != len(wanted):
        raise LostRace("An inventory of the request changed since it was checked.")

    touched = sorted(scene.root_ids)
    if touched:
        raised = raised_providers(held, asked, emptied_too=raise_emptied) & scene.root_ids.keys()
        roots = set(scene.root_ids.values())
        found = tx.batches.bump_generations(tx.connection, touched, raised, roots, tx.now)
        if found != len(touched):
            raise LostRace("A provider of the request moved or was deleted since it was read.")
        tx.touch(roots, USAGE)


def sum_of_old(held: Sequence[HeldConsumer]) -> dict[Key, int]:
    """What the held consumers have now, by inventory."""
    sums: dict[Key, int] = {}
    for consumer in held:
        for provider_id, class_id, used in consumer.old:
            key = (provider_id, class_id)
            sums[key] = sums.get(key, 0) + used
    return sums


def check_providers(held: Sequence[HeldConsumer], provider_ids: Mapping[str, int]) -> None:
    """Raises ProviderNotFound for the first provider of the request that does not exist."""
    for consumer in held:
        for uuid in consumer.write.allocations:
            if uuid not in provider_ids:
                raise ProviderNotFound(uuid)


def new_allocations(
    tx: WriteTransaction, held: Sequence[HeldConsumer], provider_ids: Mapping[str, int]
) -> list[Asked]:
    """All new allocations in the order of the request. Raises ResourceClassNotFound."""
    names: dict[str, None] = {}
    for consumer in held:
        for amounts in consumer.write.allocations.values():
            names.update(dict.fromkeys(amounts))
    ids = class_ids(tx, list(names))
    return [
        Asked(consumer.write.uuid, uuid, provider_ids[uuid], name, ids[name], amount)
        for consumer in held
        for uuid, amounts in consumer.write.allocations.items()
        for name, amount in amounts.items()
    ]


def raised_providers(
    held: Sequence[HeldConsumer], asked: Sequence[Asked], *, emptied_too: bool = True
) -> set[int]:
    """Ids of the providers whose generation rises: those named, and those that a consumer with
    an empty set leaves."""
    raised = {one.provider_id for one in asked}
    if emptied_too:
        for consumer in held:
            if not consumer.write.allocations:
                raised.update(provider_id for provider_id, _, _ in consumer.old)
    return raised


def insert_allocations(tx: WriteTransaction, asked: Sequence[Asked]) -> None:
    rows = [(one.provider_id, one.consumer_uuid, one.class_id, one.amount) for one in asked]
    tx.batches.insert(tx.connection, "allocations", _COLUMNS, rows, tx.now)


def _look(
    tx: WriteTransaction, held: Sequence[HeldConsumer], given_back: Mapping[Key, int]
) -> Scene:
    """Read the providers named in the request and those that the consumers hold something of."""
    uuids = sorted({uuid for consumer in held for uuid in consumer.write.allocations})
    ids = sorted({provider_id for provider_id, _ in given_back})
    scene = Scene({}, {}, {})
    if uuids and ids:
        rows = tx.execute(_BY_EITHER, {"uuids": uuids, "ids": ids})
    elif uuids:
        rows = tx.execute(_BY_UUID, {"uuids": uuids})
    elif ids:
        rows = tx.execute(_BY_ID, {"ids": ids})
    else:
        return scene
    for provider_id, uuid, root_id, inventory_id, class_id, *numbers in rows:
        scene.provider_ids[uuid] = provider_id
        scene.root_ids[provider_id] = provider_id if root_id is None else root_id
        if inventory_id is not None:
            scene.inventories[provider_id, class_id] = SeenInventory(inventory_id, *numbers)
    return scene
