"""The write context of allocations, read in one statement: one round trip and one moment."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Final, NamedTuple

from placement_server.store.allocations.claim_check import Key, KnownInventory
from placement_server.store.allocations.consumers import SeenConsumer
from placement_server.store.dialects import Batches, chunks, plain
from placement_server.store.records import ConsumerWrite
from placement_server.store.transactions.transaction import ReadTransaction

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
    named_uuids = (
        sorted({uuid for write in writes for uuid in write.allocations}) if providers else []
    )
    consumer_uuids = sorted({write.uuid for write in writes})
    parts = zip_longest(chunks(consumer_uuids), chunks(named_uuids), fillvalue=())
    for some_consumers, some_providers in parts:
        _read_into(context, tx, some_consumers, some_providers, in_use=providers)
    return context


def _read_into(
    context: WriteContext,
    tx: ReadTransaction,
    consumer_uuids: Sequence[str],
    provider_uuids: Sequence[str],
    *,
    in_use: bool,
) -> None:
    consumers = {consumer.write.uuid: consumer for consumer in context.consumers}
    text, parameters = _statement(tx.batches, consumer_uuids, provider_uuids, in_use=in_use)
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
                context.inventories[provider_id, class_id] = KnownInventory(inventory_id, *rest)


def _statement(
    batches: Batches, consumers: Sequence[str], names: Sequence[str], *, in_use: bool
) -> tuple[str, tuple[object, ...]]:
    parts: list[str] = []
    parameters: list[object] = []
    if consumers:
        condition, values = batches.among(consumers)
        padding = _PADDING if in_use else ""
        parts += (
            _CONSUMERS.format(padding=padding) + condition,
            _ALLOCATIONS.format(padding=padding) + condition,
        )
        parameters += values * 2
        if in_use:
            parts.append(f"{_IN_USE}{condition})")
            parameters += values
    if names:
        condition, values = batches.among(names)
        parts.append(_NAMED + condition)
        parameters += values
    return " UNION ALL ".join(parts), tuple(parameters)
