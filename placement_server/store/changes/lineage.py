"""Facts by which a copy of the trees and a database are compared."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from sqlalchemy import case, func, literal_column, select
from sqlalchemy.sql.elements import ColumnElement

from placement_server.store.dialects.among import among
from placement_server.store.tables import (
    changes,
    inventories,
    resource_provider_aggregates,
    resource_provider_traits,
    resource_providers,
)
from placement_server.store.transaction import ReadTransaction

MODULUS: Final = 1_000_003
"""Amounts are added up by their remainders: no sum of a million inventories is too large then."""

BOUND: Final = 2**62
"""Amounts beyond it count as this much."""

_C: Final = changes.c
_I: Final = inventories.c
_P: Final = resource_providers.c

_GENERATIONS: Final = select(func.sum(_P.generation))
_OF_TREES: Final = _GENERATIONS.where(among(_P.root_provider_id, "root_ids"))


class Mark(NamedTuple):
    """A change record: where it is, and the random number of the write that made it."""

    id: int
    write_id: int


class Totals(NamedTuple):
    """Counts and sums over all trees."""

    providers: int
    provider_ids: int
    inventories: int
    capacity: int
    used: int
    traits: int
    aggregates: int


def newest_marks(tx: ReadTransaction, last: int, most: int) -> list[Mark]:
    """Return the newest change records up to an id, ascending."""
    statement = select(_C.id, _C.write_id).where(_C.id <= last).order_by(_C.id.desc()).limit(most)
    return [Mark(*row) for row in reversed(tx.execute(statement).all())]


def has_marks(tx: ReadTransaction, marks: Sequence[Mark]) -> bool:
    """Check that a database has change records, given by ascending id, and from the same writes.

    A database that was restored from a backup, and has gone on since, has others under their ids.
    """
    statement = select(_C.id, _C.write_id).where(_C.id.between(marks[0].id, marks[-1].id))
    return set(marks) <= {Mark(*row) for row in tx.execute(statement)}


def totals(tx: ReadTransaction) -> Totals:
    """Add up what all trees have."""
    count = func.count(literal_column("*"))
    statements = (
        select(count, func.sum(resource_providers.c.id)).select_from(resource_providers),
        select(count, func.sum(_remainder(_I.capacity)), func.sum(_remainder(_I.used))),
        select(count).select_from(resource_provider_traits),
        select(count).select_from(resource_provider_aggregates),
    )
    return Totals(
        *(int(value or 0) for statement in statements for value in tx.execute(statement).one())
    )


def _remainder(amount: ColumnElement[int]) -> ColumnElement[int]:
    within = case((amount > BOUND, BOUND), (amount < -BOUND, -BOUND), else_=amount)
    return within % MODULUS


def generations(tx: ReadTransaction) -> dict[int, int]:
    """Return by root the sum of the generations of its tree."""
    statement = select(_P.root_provider_id, func.sum(_P.generation)).group_by(_P.root_provider_id)
    return {root_id: int(total) for root_id, total in tx.execute(statement)}


def generations_beside(tx: ReadTransaction, root_ids: Collection[int]) -> int:
    """Return the sum of the generations of all trees but some."""
    every = tx.execute(_GENERATIONS).scalar()
    some = tx.execute_among(_OF_TREES, "root_ids", root_ids)
    return int(every or 0) - sum(int(total or 0) for (total,) in some)
