"""Writes of what consumers hold in one tree; what they hold elsewhere stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa
from sqlalchemy import bindparam

from placement_server.store.allocations import consumers
from placement_server.store.allocations.consumers import SeenConsumer
from placement_server.store.allocations.write_context import read_context
from placement_server.store.dialects import Insertion, chunks
from placement_server.store.records import KEEP, ConsumerRecord, ConsumerWrite
from placement_server.store.tables import allocations
from placement_server.store.transactions.transaction import LostRace, WriteTransaction
from placement_server.store.trees import tree_rows
from placement_server.store.trees.tree import TreeProvider
from placement_server.store.trees.tree_write import (
    HoldingsWrite,
    Reason,
    TreeContradiction,
    TreeMalformed,
)

Amounts = dict[tuple[str, int], int]
"""Amounts by provider uuid and class id."""

_A: Final = allocations.c
_DELETE: Final = sa.delete(allocations).where(
    _A.consumer_id.in_(bindparam("uuids", expanding=True)),
    _A.resource_provider_id.in_(bindparam("provider_ids", expanding=True)),
)
_COLUMNS: Final = (
    ("resource_provider_id", "int"),
    ("consumer_id", "text"),
    ("resource_class_id", "int"),
    ("used", "int"),
)


@dataclass(slots=True)
class HeldInTree:
    """A consumer of the request with what it holds in the tree, before and after.

    :ivar changes: whether anything of it changes.
    """

    write: HoldingsWrite
    consumer: SeenConsumer
    old: Amounts
    new: Amounts
    changes: bool

    @property
    def is_stale(self) -> bool:
        """Whether it changes and has another generation than the request names."""
        return self.changes and self.consumer.actual_generation != self.write.expected_generation

    @property
    def delta(self) -> Amounts:
        """The changes of its amounts that are not zero."""
        return {
            key: change
            for key in self.old.keys() | self.new.keys()
            if (change := self.new.get(key, 0) - self.old.get(key, 0))
        }


def lock_and_read(
    tx: WriteTransaction, writes: Mapping[str, HoldingsWrite]
) -> tuple[list[SeenConsumer], dict[str, ConsumerRecord]]:
    """Lock the consumers that exist; return all with what they hold, and the records."""
    empty = [ConsumerWrite(uuid, {}, "", "") for uuid in writes]
    if not empty:
        return [], {}
    consumers.lock(tx, empty)
    consumers_before = read_context(tx, empty, providers=False).consumers
    return consumers_before, tree_rows.records(
        tx, [item.write.uuid for item in consumers_before if item.id is not None]
    )


def compare(
    write: HoldingsWrite,
    consumer: SeenConsumer,
    record: ConsumerRecord | None,
    providers: Mapping[int, TreeProvider],
    class_ids: Mapping[str, int],
) -> HeldInTree:
    """Compare what one consumer holds in the tree with the request.

    :param providers: those that are or will be in the tree, by id.
    :raises TreeMalformed: a new consumer has no project or user.
    """
    old: Amounts = {}
    for provider_id, class_id, used in consumer.old_allocations:
        if provider_id in providers:
            key = (providers[provider_id].uuid, class_id)
            old[key] = old.get(key, 0) + used
        else:
            consumer.keeps_others = True
    new = {
        (provider, class_ids[name]): amount
        for provider, amounts in write.amounts.items()
        for name, amount in amounts.items()
    }
    project_id, user_id = write.project_id, write.user_id
    if record is not None:
        project_id = record.project_id if project_id is None else project_id
        user_id = record.user_id if user_id is None else user_id
    is_new = record is None and write.expected_generation is None
    if new and is_new and (project_id is None or user_id is None):
        raise TreeMalformed(
            f"Consumer {write.uuid} does not exist yet, so the request has to name its project_id "
            "and user_id.",
            "allocations",
            write.uuid,
        )
    consumer.write = ConsumerWrite(
        write.uuid,
        write.amounts,
        project_id or "",
        user_id or "",
        write.consumer_type,
        write.expected_generation,
    )
    changes = old != new or (
        record is not None and consumer.lives_on and _has_new_owner(record, consumer.write)
    )
    return HeldInTree(write, consumer, old, new, changes)


def _has_new_owner(record: ConsumerRecord, write: ConsumerWrite) -> bool:
    """Return whether a request changes whose the consumer is, or its type."""
    return (record.project_id, record.user_id) != (
        write.project_id,
        write.user_id,
    ) or write.consumer_type not in (KEEP, record.consumer_type)


def generation_conflicts(holdings: Sequence[HeldInTree]) -> list[TreeContradiction]:
    """Return the consumers that change and have another generation than the request names."""
    return [
        TreeContradiction(
            Reason.CONSUMER_GENERATION,
            f"Consumer {item.write.uuid} has generation "
            f"{_generation_text(item.consumer.actual_generation)}, "
            f"the request was made for {_generation_text(item.write.expected_generation)}.",
            consumer=item.write.uuid,
        )
        for item in holdings
        if item.is_stale
    ]


def _generation_text(generation: int | None) -> str:
    return "null" if generation is None else str(generation)


def store_consumers(
    tx: WriteTransaction, holdings: Sequence[HeldInTree], provider_ids: Sequence[int]
) -> None:
    """Write the records of the consumers, and delete what they held in the tree.

    Stale ones are left alone: the request is going to be refused.

    :raises LostRace: a consumer is not the one that was read.
    """
    changed_holdings = [item for item in holdings if item.changes and not item.is_stale]
    insertion = consumers.store_records(tx, [item.consumer for item in changed_holdings])
    tx.batches.insert(tx.connection, [insertion], tx.now)
    moved_holdings = [item for item in changed_holdings if item.old]
    tree_ids = set(provider_ids)
    expected_count = sum(
        row[0] in tree_ids for item in moved_holdings for row in item.consumer.old_allocations
    )
    deleted_count = 0
    for uuids in chunks(sorted(item.write.uuid for item in moved_holdings)):
        for ids in chunks(provider_ids):
            deleted_count += tx.execute(_DELETE, {"uuids": uuids, "provider_ids": ids}).rowcount
    if deleted_count != expected_count:
        raise LostRace("The allocations of a consumer of the request changed since they were read.")


def store_allocations(
    tx: WriteTransaction, holdings: Sequence[HeldInTree], provider_ids: Mapping[str, int]
) -> None:
    """Insert what the consumers hold in the tree from now on."""
    rows = [
        (provider_ids[uuid], item.write.uuid, class_id, amount)
        for item in holdings
        if item.changes
        for (uuid, class_id), amount in item.new.items()
    ]
    tx.batches.insert(tx.connection, [Insertion("allocations", _COLUMNS, rows)], tx.now)
