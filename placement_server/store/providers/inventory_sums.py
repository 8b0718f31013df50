"""Sums of inventories by resource class, for the whole fleet, by host or by aggregate."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from sqlalchemy import ColumnElement, bindparam, case, func, select

from placement_server.store import tables
from placement_server.store.transaction import ReadTransaction

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
_OF_FLEET: Final = (
    select(_CLASSES.c.name, *_SUMS)
    .join_from(tables.inventories, _CLASSES, _CLASSES.c.id == _I.resource_class_id)
    .group_by(_CLASSES.c.name)
    .order_by(_CLASSES.c.name)
)
_BY_HOST: Final = (
    select(_CLASSES.c.name, _ROOTS.c.name, *_SUMS)
    .join_from(tables.inventories, _CLASSES, _CLASSES.c.id == _I.resource_class_id)
    .join(_PROVIDERS, _PROVIDERS.c.id == _I.resource_provider_id)
    .join(_ROOTS, _ROOTS.c.id == _PROVIDERS.c.root_provider_id)
    .group_by(_CLASSES.c.name, _ROOTS.c.name)
    .order_by(_CLASSES.c.name, _ROOTS.c.name)
)
_BY_AGGREGATE: Final = (
    select(_CLASSES.c.name, _AGGREGATES.uuid, *_SUMS)
    .join_from(tables.inventories, _CLASSES, _CLASSES.c.id == _I.resource_class_id)
    .join(_PROVIDERS, _PROVIDERS.c.id == _I.resource_provider_id)
    .join(_MEMBERS, _MEMBERS.c.resource_provider_id == _PROVIDERS.c.root_provider_id)
    .join(tables.placement_aggregates, _AGGREGATES.id == _MEMBERS.c.aggregate_id)
    .where(_AGGREGATES.uuid.in_(bindparam("uuids", expanding=True)))
    .group_by(_CLASSES.c.name, _AGGREGATES.uuid)
    .order_by(_CLASSES.c.name, _AGGREGATES.uuid)
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
