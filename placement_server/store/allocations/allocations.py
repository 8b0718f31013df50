"""Writes of allocations.

A write replaces all allocations of the consumers it names, in one transaction:

1. lock the consumers' records when there are several (two writers rarely need the same);
2. read the write context in one statement: consumers, their allocations, providers and
   inventories; check, and refuse what does not fit;
3. write consumers and allocations, the consumers only if they still are as they were read;
4. add to the use of the inventories, each only where it still fits: here, late, the contended
   rows are locked, in the order of (provider id, class id); raise the providers' generations, in
   the order of their ids; append the change records; commit.

Allocations without an inventory, left by older software, are given back to none; if there are such,
the write checks under the locks of 4 that there is still no inventory.

When a condition of 3 or 4 does not hold any more, something changed since 2: the transaction is
rolled back and retried. No generation of a provider is compared, so writers of one provider wait
for each other only from 4 to the commit, and none has to retry while there is room.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import zip_longest
from types import MappingProxyType
from typing import Final, NamedTuple

from placement_server.store.allocations import claim_check, consumers
from placement_server.store.allocations.allocation_rows import of_consumer, of_provider, of_tree
from placement_server.store.allocations.claim_check import (
    KnownInventory,
    ProviderRequest,
    RequestedAllocations,
)
from placement_server.store.allocations.consumers import SeenConsumer
from placement_server.store.dialects import plain
from placement_server.store.dialects.batches import Batches, Insertion, Rise, chunks
from placement_server.store.errors import NotFound, ProviderNotFound, joined_names
from placement_server.store.providers import inventory_rows
from placement_server.store.records import ANY, ConsumerWrite, Key
from placement_server.store.schema.names import class_ids
from placement_server.store.transaction import LostRace, ReadTransaction, WriteTransaction

_CONSUMER, _ALLOCATION, _PROVIDER = range(3)

# Rows of three kinds in the same columns; without providers the last six are left out.
_PADDING: Final = ", 0, 0, 0, 0, 0, 0"
_CONSUMERS: Final = (
    f"SELECT {_CONSUMER}, uuid, id, generation, 0{{padding}} FROM consumers WHERE uuid "
)
_ALLOCATIONS: Final = (
    f"SELECT {_ALLOCATION}, consumer_id, resource_provider_id, resource_class_id, used{{padding}} "
    "FROM allocations WHERE consumer_id "
)
_PROVIDERS: Final = (
    f"SELECT {_PROVIDER}, p.uuid, p.id, COALESCE(p.root_provider_id, p.id), i.id, "
    "i.resource_class_id, i.min_unit, i.max_unit, i.step_size, i.capacity, i.used "
    "FROM resource_providers p LEFT JOIN inventories i ON i.resource_provider_id = p.id WHERE "
)
_NAMED: Final = f"{_PROVIDERS}p.uuid "
_IN_USE: Final = (
    f"{_PROVIDERS}p.id IN (SELECT resource_provider_id FROM allocations WHERE consumer_id "
)


class WriteContext(NamedTuple):
    """The present state of everything that a write of allocations touches.

    :ivar consumers: in the order of the request.
    :ivar provider_ids: the ids of the providers by uuid.
    :ivar root_ids: the ids of their roots by provider id.
    :ivar inventories: the inventories of the providers.
    """

    consumers: list[SeenConsumer]
    provider_ids: dict[str, int]
    root_ids: dict[int, int]
    inventories: dict[Key, KnownInventory]


def read_context(
    tx: ReadTransaction, writes: Sequence[ConsumerWrite], *, providers: bool = True
) -> WriteContext:
    """Read the consumers with their allocations, and the providers.

    :param providers: read the providers too: those that the request names, and those that the
        consumers have allocations of.
    """
    context = WriteContext([SeenConsumer(write) for write in writes], {}, {}, {})
    consumers = {consumer.write.uuid: consumer for consumer in context.consumers}
    named_uuids = {uuid for write in writes for uuid in write.allocations} if providers else ()
    parts = zip_longest(chunks(sorted(consumers)), chunks(sorted(named_uuids)), fillvalue=())
    for consumer_uuids, provider_uuids in parts:
        text, parameters = _statement(tx.batches, consumer_uuids, provider_uuids, in_use=providers)
        for row in plain.rows(tx.connection, text, parameters):
            kind, uuid = row[:2]
            if kind == _ALLOCATION:
                consumers[uuid].old_allocations.append(row[2:5])
            elif kind == _CONSUMER:
                consumers[uuid].id, consumers[uuid].generation = row[2:4]
            else:
                provider_id, root_id, inventory_id, class_id, *rest = row[2:]
                context.provider_ids[uuid] = provider_id
                context.root_ids[provider_id] = root_id
                if inventory_id is not None:
                    known_inventory = KnownInventory(inventory_id, *rest)
                    context.inventories[provider_id, class_id] = known_inventory
    return context


def _statement(
    batches: Batches, consumers: Sequence[str], names: Sequence[str], *, in_use: bool
) -> tuple[str, tuple[object, ...]]:
    of_consumers, consumer_values = batches.among(consumers) if consumers else ("", ())
    of_names, name_values = batches.among(names) if names else ("", ())
    parameters = (*consumer_values * (3 if in_use else 2), *name_values)
    return _text(of_consumers, of_names, in_use=in_use), parameters


@lru_cache(maxsize=64)
def _text(of_consumers: str, of_names: str, *, in_use: bool) -> str:
    """Return the statement with these conditions; empty ones stand for nothing to read."""
    parts: list[str] = []
    if of_consumers:
        padding = _PADDING if in_use else ""
        parts = [text.format(padding=padding) + of_consumers for text in (_CONSUMERS, _ALLOCATIONS)]
        if in_use:
            parts.append(f"{_IN_USE}{of_consumers})")
    if of_names:
        parts.append(_NAMED + of_names)
    return " UNION ALL ".join(parts)


__all__ = ["delete", "of_consumer", "of_provider", "of_tree", "write"]

# The most inventories or providers that an error names.
_SHOWN: Final = 8
_COLUMNS: Final = (
    ("resource_provider_id", "int"),
    ("resource_class_id", "int"),
    ("consumer_id", "text"),
    ("used", "int"),
)


def write(tx: WriteTransaction, writes: Sequence[ConsumerWrite]) -> None:
    """Give each consumer exactly its new allocations.

    The errors are raised in this order.

    :raises ConsumerGenerationConflict: a consumer's generation is not the expected one.
    :raises ProviderNotFound: a provider does not exist.
    :raises ResourceClassNotFound: classes do not exist.
    :raises InvalidInventoryForAllocation: a provider has no inventory of a class.
    :raises ConstraintViolated: an amount is not one that the inventory gives out.
    :raises CapacityExceeded: an amount does not fit.
    """
    if len(writes) > 1:
        consumers.lock(tx, writes)
    context = read_context(tx, writes)
    consumers.check_generations(context.consumers)
    _apply(tx, context, raise_emptied=True)


def delete(tx: WriteTransaction, consumer_uuid: str) -> None:
    """Delete all allocations of a consumer, and its record; no provider's generation rises.

    :raises NotFound: it has none.
    """
    context = read_context(tx, [ConsumerWrite(consumer_uuid, {}, "", "", expected_generation=ANY)])
    if not context.consumers[0].old_allocations:
        raise NotFound(f"No allocations for consumer '{consumer_uuid}'")
    _apply(tx, context, raise_emptied=False)


def _apply(tx: WriteTransaction, context: WriteContext, *, raise_emptied: bool) -> None:
    """Check what the consumers want against the context and write it; no statement may follow.

    All providers of the context are locked, and their trees get change records.

    :raises LostRace: something is not as the context says any more.
    """
    given_back = sum_of_old(context.consumers)
    check_providers(context.consumers, context.provider_ids)
    requested_use = new_allocations(tx, context.consumers, context.provider_ids)
    taken_amounts = claim_check.check(requested_use, context.inventories, given_back)
    if tx.past is not None:
        for uuid, provider_id in context.provider_ids.items():
            tx.past.know(provider_id, uuid, context.root_ids[provider_id])
    replace_holdings(tx, context.consumers, requested_use)

    if not context.root_ids:
        return
    raised_ids = raised_providers(context.consumers, requested_use, emptied_too=raise_emptied)
    rises = [
        Rise(provider_id, root_id, provider_id in raised_ids)
        for provider_id, root_id in sorted(context.root_ids.items())
    ]
    changes = claim_check.changes(taken_amounts, context.inventories, given_back)
    settlement = tx.settle(changes, rises)
    if settlement.changed_inventories != len(changes):
        raise LostRace(
            "An inventory of the request changed since it was checked: "
            f"{_inventory_names(context, requested_use)}.",
            uuids=list(context.provider_ids),
        )
    if settlement.found_providers != len(rises):
        raise LostRace(
            "A provider of the request moved or was deleted since it was read: "
            f"{joined_names(context.provider_ids, _SHOWN)}.",
            uuids=list(context.provider_ids),
        )
    inventory_rows.require_none(tx, given_back.keys() - context.inventories.keys())


def _inventory_names(context: WriteContext, requested_use: RequestedAllocations) -> str:
    """Name the inventories of a write; those that are only given back to, by their provider."""
    names = {
        f"{name} of {part.provider_uuid}": None
        for part in requested_use.parts
        for name in part.amounts
    }
    claimed_uuids = {part.provider_uuid for part in requested_use.parts}
    others = (uuid for uuid in context.provider_ids if uuid not in claimed_uuids)
    return joined_names([*names, *others], _SHOWN)


def sum_of_old(consumers: Sequence[SeenConsumer]) -> dict[Key, int]:
    """Return the sums of the consumers' present allocations, by inventory."""
    sums: dict[Key, int] = {}
    for consumer in consumers:
        for provider_id, class_id, used in consumer.old_allocations:
            key = (provider_id, class_id)
            sums[key] = sums.get(key, 0) + used
    return sums


def check_providers(consumers: Sequence[SeenConsumer], provider_ids: Mapping[str, int]) -> None:
    """Check that all providers of the request exist.

    :raises ProviderNotFound: for the first that does not.
    """
    for consumer in consumers:
        for uuid in consumer.write.allocations:
            if uuid not in provider_ids:
                raise ProviderNotFound(uuid)


def new_allocations(
    tx: WriteTransaction,
    consumers: Sequence[SeenConsumer],
    provider_ids: Mapping[str, int],
    known_classes: Mapping[str, int] = MappingProxyType({}),
) -> RequestedAllocations:
    """Return all new allocations in the order of the request.

    :param known_classes: the ids of classes by name, which need not be read.
    :raises ResourceClassNotFound: classes do not exist.
    """
    parts = [
        ProviderRequest(consumer.write.uuid, uuid, provider_ids[uuid], amounts)
        for consumer in consumers
        for uuid, amounts in consumer.write.allocations.items()
    ]
    names = dict.fromkeys(name for part in parts for name in part.amounts)
    unknown_names = [name for name in names if name not in known_classes]
    return RequestedAllocations(parts, {**known_classes, **class_ids(tx, unknown_names)})


def raised_providers(
    consumers: Sequence[SeenConsumer],
    requested_use: RequestedAllocations,
    *,
    emptied_too: bool = True,
) -> set[int]:
    """Return the ids of the providers whose generation rises.

    These are those named and, with `emptied_too`, those that a consumer with an empty set leaves.
    """
    raised_ids = set(requested_use.provider_ids)
    if emptied_too:
        for consumer in consumers:
            if not consumer.write.allocations:
                raised_ids.update(provider_id for provider_id, _, _ in consumer.old_allocations)
    return raised_ids


def replace_holdings(
    tx: WriteTransaction,
    seen_consumers: Sequence[SeenConsumer],
    requested_use: RequestedAllocations,
) -> None:
    """Write consumers and their allocations, without a change of inventories.

    :raises LostRace: a consumer changed since it was read.
    """
    new_consumers = consumers.store_records(tx, seen_consumers)
    consumers.delete_allocations(tx, seen_consumers)
    insertions = [new_consumers, Insertion("allocations", _COLUMNS, requested_use.rows)]
    if tx.past is not None:
        new_holdings: dict[str, dict[Key, int]] = {}
        for provider_id, class_id, consumer, used in requested_use.rows:
            new_holdings.setdefault(consumer, {})[provider_id, class_id] = used
        for seen in seen_consumers:
            uuid = seen.write.uuid
            tx.past.add_holdings(uuid, sum_of_old([seen]), new_holdings.get(uuid, {}))
        if not tx.past.unknown_providers():
            # with the same statement, where the database can
            insertions.append(tx.past.take())
    tx.batches.insert(tx.connection, insertions, tx.now)
