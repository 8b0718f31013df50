"""Sums of inventories by resource class: of the whole fleet, by host, by aggregate, over time.

Samples of what the fleet has and uses are kept: one a minute of the last day, one in ten before.
The table has about 2,300 rows at most, of a few hundred bytes each.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy import ColumnElement, bindparam, case, func, select

from placement_server.store import tables
from placement_server.store.providers.provider_rows import AnySelect
from placement_server.store.tables import use_samples
from placement_server.store.transaction import ReadTransaction, WriteTransaction

_I: Final = tables.inventories.c
_CLASSES: Final = tables.resource_classes
_PROVIDERS: Final = tables.resource_providers
_MEMBERS: Final = tables.resource_provider_aggregates
_AGGREGATES: Final = tables.placement_aggregates.c
_ROOTS: Final = tables.resource_providers.alias("root")


class InventorySum(NamedTuple):
    """What inventories of one class come to.

    :ivar part: the name of the root of their providers, or the uuid of an aggregate that this root
        is in; "" for all of the fleet.
    :ivar free: of those that are used beyond their capacity, nothing.
    """

    resource_class: str
    part: str
    capacity: int
    reserved: int
    used: int
    free: int


def _positive(amount: ColumnElement[int]) -> ColumnElement[int]:
    return func.sum(case((amount > 0, amount), else_=0))


_SUMS: Final = (
    _positive(_I.capacity),
    func.sum(_I.reserved),
    func.sum(_I.used),
    _positive(_I.capacity - _I.used),
)


def _sums_by(*parts: ColumnElement[str]) -> AnySelect:
    keys = (_CLASSES.c.name, *parts)
    joined = select(*keys, *_SUMS).join_from(
        tables.inventories, _CLASSES, _CLASSES.c.id == _I.resource_class_id
    )
    return joined.group_by(*keys).order_by(*keys)


_OF_FLEET: Final = _sums_by()
_BY_HOST: Final = (
    _sums_by(_ROOTS.c.name)
    .join(_PROVIDERS, _PROVIDERS.c.id == _I.resource_provider_id)
    .join(_ROOTS, _ROOTS.c.id == _PROVIDERS.c.root_provider_id)
)
_BY_AGGREGATE: Final = (
    _sums_by(_AGGREGATES.uuid)
    .join(_PROVIDERS, _PROVIDERS.c.id == _I.resource_provider_id)
    .join(_MEMBERS, _MEMBERS.c.resource_provider_id == _PROVIDERS.c.root_provider_id)
    .join(tables.placement_aggregates, _AGGREGATES.id == _MEMBERS.c.aggregate_id)
    .where(_AGGREGATES.uuid.in_(bindparam("uuids", expanding=True)))
)


def of_fleet(tx: ReadTransaction) -> list[InventorySum]:
    """Return the sums over all providers."""
    return [InventorySum(name, "", *map(int, amounts)) for name, *amounts in tx.execute(_OF_FLEET)]


def by_host(tx: ReadTransaction) -> list[InventorySum]:
    """Return the sums over the providers of each tree."""
    return [_sum(*row) for row in tx.execute(_BY_HOST)]


def by_aggregate(tx: ReadTransaction, uuids: Collection[str]) -> list[InventorySum]:
    """Return the sums over the trees whose roots are in each of these aggregates."""
    return [_sum(*row) for row in tx.execute(_BY_AGGREGATE, {"uuids": sorted(uuids)})]


def _sum(resource_class: str, part: str, *amounts: int) -> InventorySum:
    # some databases sum up to decimal numbers
    return InventorySum(resource_class, part, *map(int, amounts))


Sample = tuple[int, Mapping[str, tuple[int, int]]]
"""A minute since 1970, and used amount and capacity by resource class."""

DAY: Final = 24 * 60
"""Minutes of which all samples are kept."""
KEPT: Final = 7 * DAY
THINNED: Final = 10

_C: Final = use_samples.c
_EXISTS: Final = sa.select(_C.minute).where(_C.minute == sa.bindparam("minute"))
_DELETE: Final = sa.delete(use_samples).where(
    sa.or_(
        _C.minute < sa.bindparam("oldest"),
        # of a clock that was ahead, which would end each chart for as long
        _C.minute > sa.bindparam("newest"),
        sa.and_(_C.minute < sa.bindparam("thinned"), _C.minute % THINNED != 0),
    )
)
_READ: Final = sa.select(_C.minute, _C.document).order_by(_C.minute)


def sample_exists(tx: ReadTransaction, minute: int) -> bool:
    """Check whether another worker has taken the sample of a minute."""
    return tx.execute(_EXISTS, {"minute": minute}).first() is not None


def write_sample(tx: WriteTransaction, minute: int, sums: Sequence[InventorySum]) -> None:
    """Write the sample of a minute unless there is one; delete what is too old, or too new."""
    if sample_exists(tx, minute):
        return
    document = json.dumps({entry.resource_class: (entry.used, entry.capacity) for entry in sums})
    tx.execute(sa.insert(use_samples), {"minute": minute, "document": document})
    ages = {"oldest": minute - KEPT, "newest": minute + DAY, "thinned": minute - DAY}
    tx.execute(_DELETE, ages)


def samples(tx: ReadTransaction) -> list[Sample]:
    """Return all samples, the oldest first."""
    return [(minute, json.loads(document)) for minute, document in tx.execute(_READ)]
