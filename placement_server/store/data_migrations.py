"""Repairs of the data of old software, in batches, while services run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import sqlalchemy as sa
from sqlalchemy import bindparam, func, select

from placement_server.store.allocations.consumers import ensure_owners
from placement_server.store.tables import allocations, consumers, resource_providers
from placement_server.store.transaction import STRUCTURE, ReadTransaction, WriteTransaction

_P: Final = resource_providers.c

_ROOTLESS: Final = select(_P.id, _P.parent_provider_id).where(_P.root_provider_id.is_(None))
_SET_ROOT: Final = (
    sa.update(resource_providers)
    .where(_P.id == bindparam("the_id"), _P.root_provider_id.is_(None))
    .values(root_provider_id=bindparam("root_id"))
)
INCOMPLETE_CONSUMERS: Final = (
    select(allocations.c.consumer_id)
    .where(~sa.exists().where(consumers.c.uuid == allocations.c.consumer_id))
    .distinct()
)


def count_rootless(tx: ReadTransaction) -> int:
    """Count the providers without a root."""
    count = (
        select(func.count()).select_from(resource_providers).where(_P.root_provider_id.is_(None))
    )
    return int(tx.execute(count).scalar_one())


def count_incomplete_consumers(tx: ReadTransaction) -> int:
    """Count the consumers that have allocations but no record."""
    return int(
        tx.execute(select(func.count()).select_from(INCOMPLETE_CONSUMERS.subquery())).scalar_one()
    )


def set_root_provider_ids(tx: WriteTransaction, max_count: int) -> int:
    """Give providers without a root the top of their tree: themselves when they have no parent.

    :returns: how many.
    """
    rootless = tx.execute(_ROOTLESS.order_by(_P.id).limit(max_count)).all()
    roots = [{"the_id": row.id, "root_id": _top(tx, row.id)} for row in rootless]
    if roots:
        tx.execute(_SET_ROOT, roots)
        tx.touch({root["root_id"] for root in roots}, STRUCTURE)
    return len(roots)


def _top(tx: ReadTransaction, provider_id: int) -> int:
    """Return the end of the parent chain; where it runs in a circle, the provider itself."""
    chain = [provider_id]
    while True:
        parent_id = tx.execute(select(_P.parent_provider_id).where(_P.id == chain[-1])).scalar()
        if parent_id is None:
            return chain[-1]
        if parent_id in chain:
            return provider_id
        chain.append(parent_id)


def create_incomplete_consumers(
    tx: WriteTransaction, max_count: int, *, project_id: str, user_id: str
) -> int:
    """Give consumers that have allocations but no record one, with this project and user.

    :returns: how many.
    """
    uuids = sorted(tx.execute(INCOMPLETE_CONSUMERS.limit(max_count)).scalars())
    if uuids:
        ids = ensure_owners(tx, [project_id], [user_id], [])
        tx.execute(
            sa.insert(consumers),
            [
                {
                    "uuid": uuid,
                    "project_id": ids.projects[project_id],
                    "user_id": ids.users[user_id],
                    "generation": 0,
                    "created_at": tx.now,
                    "updated_at": tx.now,
                }
                for uuid in uuids
            ],
        )
        # no tree changes; the outcome of an interrupted commit is read from the change record
        tx.touch_names()
    return len(uuids)


Migration = Callable[[WriteTransaction, int], int]
