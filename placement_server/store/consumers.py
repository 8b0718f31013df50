"""Consumers: a record exists if and only if the consumer has allocations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import sqlalchemy as sa
from sqlalchemy import bindparam, select

from placement_server.store import owners
from placement_server.store.dialects import chunks
from placement_server.store.errors import ConsumerGenerationConflict
from placement_server.store.records import ANY, KEEP, ConsumerWrite, Keep
from placement_server.store.tables import allocations, consumers
from placement_server.store.transaction import WriteTransaction

_C: Final = consumers.c

# Always in the order of the uuids, here and where new ones are inserted.
_HOLD: Final = (
    select(_C.id, _C.uuid, _C.generation)
    .where(_C.uuid.in_(bindparam("uuids", expanding=True)))
    .order_by(_C.uuid)
    .with_for_update()
)
_ALLOCATIONS: Final = select(
    allocations.c.consumer_id,
    allocations.c.resource_provider_id,
    allocations.c.resource_class_id,
    allocations.c.used,
).where(allocations.c.consumer_id.in_(bindparam("uuids", expanding=True)))
_DELETE_ALLOCATIONS: Final = sa.delete(allocations).where(
    allocations.c.consumer_id.in_(bindparam("uuids", expanding=True))
)
_DELETE: Final = sa.delete(consumers).where(_C.id.in_(bindparam("ids", expanding=True)))
_RAISE: Final = (
    sa.update(consumers)
    .where(_C.id.in_(bindparam("ids", expanding=True)))
    .values(
        generation=_C.generation + 1,
        project_id=bindparam("the_project"),
        user_id=bindparam("the_user"),
        updated_at=bindparam("now"),
    )
)
_RAISE_AND_SET_TYPE: Final = _RAISE.values(consumer_type_id=bindparam("the_type"))
_COLUMNS: Final = (
    ("uuid", "text"),
    ("project_id", "int"),
    ("user_id", "int"),
    ("consumer_type_id", "int"),
    ("generation", "int"),
)


@dataclass(slots=True)
class HeldConsumer:
    """A consumer of the request, its record locked; ``id`` is None when there is no record.

    ``old`` has its present allocations: provider id, class id, amount.
    """

    write: ConsumerWrite
    id: int | None = None
    generation: int = 0
    old: list[tuple[int, int, int]] = field(default_factory=list)


def hold(tx: WriteTransaction, writes: Sequence[ConsumerWrite]) -> list[HeldConsumer]:
    """Lock the records of the consumers and read their allocations; in the order given."""
    held = {write.uuid: HeldConsumer(write) for write in writes}
    for uuids in chunks(sorted(held)):
        for row_id, uuid, generation in tx.execute(_HOLD, {"uuids": uuids}):
            held[uuid].id = row_id
            held[uuid].generation = generation
    for uuids in chunks(sorted(held)):
        for uuid, provider_id, class_id, used in tx.execute(_ALLOCATIONS, {"uuids": uuids}):
            held[uuid].old.append((provider_id, class_id, used))
    return list(held.values())


def check_generations(held: Sequence[HeldConsumer]) -> None:
    """Raises ConsumerGenerationConflict for the first consumer whose generation is not the one
    that its writer expects."""
    for consumer in held:
        expected = consumer.write.expected_generation
        if expected is ANY:
            continue
        # a record without allocations is a leftover of older software, not a consumer
        actual = consumer.generation if consumer.id is not None and consumer.old else None
        if expected != actual:
            raise ConsumerGenerationConflict(consumer.write.uuid, actual, expected)


def delete_allocations(tx: WriteTransaction, held: Sequence[HeldConsumer]) -> None:
    """Take away what the held consumers have; the use of the inventories is not touched here."""
    for uuids in chunks(sorted(consumer.write.uuid for consumer in held if consumer.old)):
        tx.execute(_DELETE_ALLOCATIONS, {"uuids": uuids})


def store_records(tx: WriteTransaction, held: Sequence[HeldConsumer]) -> None:
    """Create, raise or end the consumers' records, as their new sets of allocations demand."""
    ended = sorted(
        consumer.id
        for consumer in held
        if consumer.id is not None and not consumer.write.allocations
    )
    for ids in chunks(ended):
        tx.execute(_DELETE, {"ids": ids})
    living = [consumer for consumer in held if consumer.write.allocations]
    if not living:
        return
    owner_ids = owners.ensure(
        tx,
        {consumer.write.project_id for consumer in living},
        {consumer.write.user_id for consumer in living},
        {
            consumer.write.consumer_type
            for consumer in living
            if isinstance(consumer.write.consumer_type, str)
        },
    )
    new: list[tuple[str, int, int, int | None, int]] = []
    raised: dict[tuple[int, int, int | Keep | None], list[int]] = {}
    for consumer in living:
        write = consumer.write
        project_id = owner_ids.projects[write.project_id]
        user_id = owner_ids.users[write.user_id]
        if isinstance(write.consumer_type, str):
            type_id: int | None = owner_ids.types[write.consumer_type]
        else:
            type_id = None
        if consumer.id is None:
            new.append((write.uuid, project_id, user_id, type_id, 1))
        else:
            kept = KEEP if write.consumer_type is KEEP else type_id
            raised.setdefault((project_id, user_id, kept), []).append(consumer.id)
    for (project_id, user_id, kept), all_ids in raised.items():
        values = {"the_project": project_id, "the_user": user_id, "now": tx.now}
        for ids in chunks(sorted(all_ids)):
            if kept is KEEP:
                tx.execute(_RAISE, {"ids": ids, **values})
            else:
                tx.execute(_RAISE_AND_SET_TYPE, {"ids": ids, "the_type": kept, **values})
    new.sort()
    tx.batches.insert(tx.connection, "consumers", _COLUMNS, new, tx.now)
