"""Differences between two provider trees.  Pure: a comparison of two snapshots."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import astuple

from compute_agent.provider_tree import ProviderData, ProviderTree
from compute_agent.provider_tree.inventory import FrozenRecord, equal_inventories
from compute_agent.report.steps import (
    CreateProvider,
    DeleteProvider,
    SetAggregates,
    SetInventory,
    SetTraits,
)


class Reparent(Struct, frozen=True):
    uuid: str
    before: str | None
    after: str | None


class Rename(Struct, frozen=True):
    uuid: str
    before: str
    after: str


class Difference(Struct, frozen=True):
    """The changes from an old tree to a new one.

    `create` has parents first, `delete` children first; the others follow the new tree's order.
    """

    create: tuple[CreateProvider, ...] = ()
    reparent: tuple[Reparent, ...] = ()
    rename: tuple[Rename, ...] = ()
    inventories: tuple[SetInventory, ...] = ()
    aggregates: tuple[SetAggregates, ...] = ()
    traits: tuple[SetTraits, ...] = ()
    delete: tuple[DeleteProvider, ...] = ()

    def __bool__(self) -> bool:
        return any(astuple(self))


def diff(old: ProviderTree, new: ProviderTree) -> Difference:
    """Return the difference between two trees, empty when they are the same to placement.

    Generations and local resources are not compared; ratios are compared in single precision.
    """
    if old == new:
        return Difference()
    before = {uuid: old.data(uuid) for uuid in old.get_provider_uuids()}
    after = {uuid: new.data(uuid) for uuid in new.get_provider_uuids()}
    pairs = [(before.get(uuid), provider) for uuid, provider in after.items()]
    return Difference(
        create=tuple(
            CreateProvider(now.uuid, now.name, now.parent_uuid) for was, now in pairs if was is None
        ),
        reparent=tuple(
            Reparent(now.uuid, was.parent_uuid, now.parent_uuid)
            for was, now in pairs
            if was is not None and was.parent_uuid != now.parent_uuid
        ),
        rename=tuple(
            Rename(now.uuid, was.name, now.name)
            for was, now in pairs
            if was is not None and was.name != now.name
        ),
        inventories=tuple(
            change for was, now in pairs if (change := _inventory_change(was, now)) is not None
        ),
        aggregates=tuple(
            SetAggregates(now.uuid, now.name, aggregates_before, now.aggregates)
            for was, now in pairs
            if (aggregates_before := was.aggregates if was else frozenset()) != now.aggregates
        ),
        traits=tuple(
            SetTraits(now.uuid, now.name, traits_before, now.traits)
            for was, now in pairs
            if (traits_before := was.traits if was else frozenset()) != now.traits
        ),
        delete=tuple(
            DeleteProvider(uuid, before[uuid].name, before[uuid].parent_uuid)
            for uuid in reversed(before)
            if uuid not in after
        ),
    )


def _inventory_change(was: ProviderData | None, now: ProviderData) -> SetInventory | None:
    inventory_before = was.inventory if was is not None else FrozenRecord()
    if inventory_before is now.inventory or equal_inventories(inventory_before, now.inventory):
        return None
    return SetInventory(now.uuid, now.name, inventory_before, now.inventory)
