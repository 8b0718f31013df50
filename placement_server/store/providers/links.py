"""Associations of one provider with traits or aggregates."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

import sqlalchemy as sa
from sqlalchemy import select

from placement_server.store.dialects.batches import among
from placement_server.store.past_changes import AGGREGATE, TRAIT
from placement_server.store.records import Provider
from placement_server.store.tables import traits
from placement_server.store.transaction import WriteTransaction


def replace(
    tx: WriteTransaction,
    others: sa.Column[int],
    names: sa.Column[str],
    provider: Provider,
    old_ids: AbstractSet[int],
    new_ids: AbstractSet[int],
) -> None:
    """End and begin associations, so that a provider with the old ones has the new ones.

    :param others: the column with the ids of traits or aggregates, in the table of associations.
    :param names: the column with what these are called, in the table of their own.
    """
    table = others.table
    if tx.past is not None and old_ids != new_ids:
        called = select(names.table.c.id, names).where(among(names.table.c.id, "ids"))
        what = TRAIT if names.table is traits else AGGREGATE
        for other_id, name in tx.execute_among(called, "ids", old_ids ^ new_ids):
            tx.past.add(provider.id, what, name, int(other_id in old_ids), int(other_id in new_ids))
    if old_ids - new_ids:
        tx.execute(
            sa.delete(table).where(
                table.c.resource_provider_id == provider.id, others.in_(sorted(old_ids - new_ids))
            )
        )
    if new_ids - old_ids:
        tx.execute(
            sa.insert(table),
            [
                {
                    "resource_provider_id": provider.id,
                    others.name: other_id,
                    "created_at": tx.now,
                    "updated_at": tx.now,
                }
                for other_id in sorted(new_ids - old_ids)
            ],
        )
