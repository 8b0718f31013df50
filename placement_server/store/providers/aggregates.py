"""Aggregates: labels that exist only as associations of providers.

The row of one without associations is deleted in the end (`placement_server.store.unused`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import sqlalchemy as sa
from sqlalchemy import bindparam, select

from placement_server.store import unused
from placement_server.store.dialects.batches import among
from placement_server.store.providers import provider_rows
from placement_server.store.providers.providers import associate, bump
from placement_server.store.records import Provider
from placement_server.store.tables import placement_aggregates, resource_provider_aggregates
from placement_server.store.transaction import STRUCTURE, ReadTransaction, WriteTransaction

_LINKS: Final = resource_provider_aggregates
_OF_PROVIDER: Final = provider_rows.select_with(
    _LINKS.join(placement_aggregates, _LINKS.c.aggregate_id == placement_aggregates.c.id),
    _LINKS.c.resource_provider_id,
    placement_aggregates.c.uuid,
    order_by=placement_aggregates.c.id,
)
_LINKED: Final = select(_LINKS.c.aggregate_id).where(
    _LINKS.c.resource_provider_id == bindparam("provider_id")
)
_ROWS: Final = select(
    placement_aggregates.c.uuid,
    placement_aggregates.c.id,
    unused.is_marked(placement_aggregates),
).where(among(placement_aggregates.c.uuid, "uuids"))


def of_provider(tx: ReadTransaction, uuid: str) -> tuple[int, list[str]]:
    """Return the generation of the provider and the uuids of its aggregates.

    :raises ProviderNotFound: it does not exist.
    """
    generation, rows = provider_rows.get_with(tx, _OF_PROVIDER, uuid)
    return generation, [row[0] for row in rows]


def replace(
    tx: WriteTransaction, uuid: str, aggregates: Sequence[str], *, generation: int | None
) -> Provider:
    """Make these the aggregates of the provider; unknown ones are created.

    :param generation: must be the current one, which rises always; `None` neither compares nor
        raises it (microversions before 1.19).
    :raises ProviderNotFound: the provider does not exist.
    :raises ConcurrentUpdate: `generation` is not the current one.
    """
    provider = provider_rows.get(tx, uuid)
    if generation is not None:
        provider_rows.require_generation(provider, generation)
    new_ids = set(ensure(tx, aggregates).values())
    # the provider's row first, so that two writers of the same provider take turns
    bump(tx, provider, by=0 if generation is None else 1)
    old_ids = set(tx.execute(_LINKED, {"provider_id": provider.id}).scalars())
    associate(tx, _LINKS.c.aggregate_id, placement_aggregates.c.uuid, provider, old_ids, new_ids)
    tx.touch([provider.root_id], STRUCTURE)
    return provider_rows.get(tx, uuid)


def ensure(tx: WriteTransaction, aggregates: Collection[str]) -> dict[str, int]:
    """Return ids by uuid; the loser of the race for a new one is retried."""
    uuids = sorted(set(aggregates))
    rows = tx.execute_among(_ROWS, "uuids", uuids)
    marked_ids = [row_id for _, row_id, is_marked in rows if is_marked]
    if marked_ids:
        unused.unmark(tx, placement_aggregates, marked_ids)
    ids: dict[str, int] = {uuid: row_id for uuid, row_id, _ in rows}
    new_uuids = [uuid for uuid in uuids if uuid not in ids]
    if new_uuids:
        tx.execute(
            sa.insert(placement_aggregates),
            [{"uuid": uuid, "created_at": tx.now, "updated_at": tx.now} for uuid in new_uuids],
        )
        ids |= {uuid: row_id for uuid, row_id, _ in tx.execute_among(_ROWS, "uuids", new_uuids)}
    return ids
