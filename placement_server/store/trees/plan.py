"""The difference between a tree as stored and as it is to be, without a database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from placement_server.store.providers.inventory_rows import HeldInventory
from placement_server.store.records import InventoryRecord
from placement_server.store.trees.scope import Scope
from placement_server.store.trees.tree import TreeProvider
from placement_server.store.trees.tree_write import (
    ProviderWrite,
    Reason,
    TreeContradiction,
    TreeMalformed,
    TreeWrite,
)

StockKey = tuple[str, str]
"""Provider uuid and resource class."""


@dataclass(slots=True)
class Associations:
    """Associations of providers with traits, or with aggregates.

    :ivar added_links: uuid of the provider, and name of the trait or uuid of the aggregate.
    :ivar removed_links: provider id, and id of the trait or aggregate.
    """

    added_links: list[tuple[str, str]] = field(default_factory=list)
    removed_links: list[tuple[int, int]] = field(default_factory=list)

    def compare(
        self, uuid: str, provider_id: int, old: Mapping[str, int], new: frozenset[str]
    ) -> bool:
        """Add the changes of one provider; return whether there are any."""
        self.added_links += [(uuid, name) for name in sorted(new - old.keys())]
        self.removed_links += [(provider_id, old[name]) for name in sorted(old.keys() - new)]
        return old.keys() != new


@dataclass(slots=True)
class TreePlan:
    """What a write changes, but for allocations.

    :ivar new_levels: new providers, in levels from the root down.
    :ivar deleted_providers: providers to delete.
    :ivar renamed_providers: existing providers with another name or parent.
    :ivar changed_uuids: the uuids of existing providers whose generation rises.
    :ivar records: inventories to insert or update.
    :ivar removed_inventories: inventories to delete, with their class, also those of deleted
        providers.
    :ivar stock: all inventories that the providers have after the write.
    """

    new_levels: list[list[ProviderWrite]] = field(default_factory=list)
    deleted_providers: list[TreeProvider] = field(default_factory=list)
    renamed_providers: list[ProviderWrite] = field(default_factory=list)
    changed_uuids: set[str] = field(default_factory=set)
    records: dict[StockKey, InventoryRecord] = field(default_factory=dict)
    removed_inventories: dict[StockKey, HeldInventory] = field(default_factory=dict)
    stock: dict[StockKey, HeldInventory | InventoryRecord] = field(default_factory=dict)
    traits: Associations = field(default_factory=Associations)
    aggregates: Associations = field(default_factory=Associations)
    conflicts: list[TreeContradiction] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether nothing of the tree's structure changes."""
        return not (self.new_levels or self.deleted_providers or self.changed_uuids)

    @property
    def new_names(self) -> dict[str, str]:
        """The names that providers get, with the uuids of these."""
        created_providers = [target for level in self.new_levels for target in level]
        return {
            target.name: target.uuid for target in (*created_providers, *self.renamed_providers)
        }

    @property
    def leaving_names(self) -> set[str]:
        """The uuids of providers that may lose their names."""
        deleted_uuids = {provider.uuid for provider in self.deleted_providers}
        return deleted_uuids | {target.uuid for target in self.renamed_providers}


def plan(write: TreeWrite, scope: Scope) -> TreePlan:
    """Compare a request with what is stored.

    :raises TreeMalformed: the providers would not be a tree.
    """
    changes = TreePlan()
    absent = set(write.absent)
    changes.deleted_providers = [
        scope.providers[uuid] for uuid in write.absent if uuid in scope.providers
    ]
    levels = _levels(write, scope, absent, changes.conflicts)
    parents = _parent_uuids(scope)
    for level in levels:
        created_providers = [
            write.providers[uuid]
            for uuid in level
            if uuid in write.providers and uuid not in scope.providers
        ]
        if created_providers:
            changes.new_levels.append(created_providers)
    for target in write.providers.values():
        _compare(changes, target, scope.providers.get(target.uuid), parents.get(target.uuid))
    for provider in scope.providers.values():
        is_absent = provider.uuid in absent
        named_provider = write.providers.get(provider.uuid)
        for name, inventory in provider.stock.items():
            key = (provider.uuid, name)
            if is_absent or (
                named_provider is not None
                and named_provider.inventories is not None
                and name not in named_provider.inventories
            ):
                changes.removed_inventories[key] = inventory
            else:
                changes.stock[key] = inventory
    changes.stock.update(changes.records)
    return changes


def _compare(
    changes: TreePlan, target: ProviderWrite, provider: TreeProvider | None, parent: str | None
) -> None:
    """Add the changes of one provider that the request names."""
    uuid = target.uuid
    stock = provider.stock if provider is not None else {}
    has_changed = False
    if provider is not None and (provider.name, parent) != (target.name, target.parent_uuid):
        changes.renamed_providers.append(target)
        has_changed = True
    if target.inventories is not None:
        different = {
            (uuid, name): record
            for name, record in target.inventories.items()
            if name not in stock or _record(stock[name]) != record
        }
        changes.records.update(different)
        has_changed |= bool(different) or not stock.keys() <= target.inventories.keys()
    provider_id = provider.id if provider is not None else 0
    if target.traits is not None:
        old_ids = provider.trait_ids if provider is not None else {}
        has_changed |= changes.traits.compare(uuid, provider_id, old_ids, target.traits)
    if target.aggregates is not None:
        old_ids = provider.aggregate_ids if provider is not None else {}
        has_changed |= changes.aggregates.compare(uuid, provider_id, old_ids, target.aggregates)
    if has_changed and provider is not None:
        changes.changed_uuids.add(uuid)


def _record(inventory: HeldInventory) -> InventoryRecord:
    return InventoryRecord(
        inventory.total,
        inventory.reserved,
        inventory.min_unit,
        inventory.max_unit,
        inventory.step_size,
        inventory.allocation_ratio,
    )


def _parent_uuids(scope: Scope) -> dict[str, str | None]:
    uuids = {provider.id: provider.uuid for provider in scope.providers.values()}
    return {
        # A parent that is in none of these is one that a provider is taken from.
        uuid: None if provider.parent_id is None else uuids.get(provider.parent_id, "")
        for uuid, provider in scope.providers.items()
    }


def _levels(
    write: TreeWrite, scope: Scope, absent: set[str], conflicts: list[TreeContradiction]
) -> list[list[str]]:
    """Return the uuids of the new tree, level by level.

    :raises TreeMalformed: a provider has no place in it.
    """
    parents = _parent_uuids(scope)
    parents.update((uuid, target.parent_uuid) for uuid, target in write.providers.items())
    children: dict[str, list[str]] = {}
    for uuid, parent in parents.items():
        if uuid in absent:
            continue
        if uuid == write.root_uuid:
            _check_root(write, parent)
        elif uuid in write.providers and (
            parent is None or parent in absent or parent not in parents
        ):
            raise _misplacement(write, uuid, parent)
        elif parent:
            children.setdefault(parent, []).append(uuid)
    conflicts += [_has_children(uuid, children[uuid]) for uuid in write.absent if uuid in children]
    if write.root_uuid not in parents and write.root_uuid not in absent:
        raise TreeMalformed(
            f"The root {write.root_uuid} does not exist yet, so the request has to create it.",
            "providers",
        )
    levels = [[] if write.root_uuid in absent else [write.root_uuid]]
    while levels[-1]:
        levels.append([child for uuid in levels[-1] for child in children.get(uuid, ())])
    reached_uuids = {uuid for level in levels for uuid in level}
    for uuid in write.providers:
        if uuid not in reached_uuids and not conflicts:
            raise TreeMalformed(
                f"Resource provider {uuid} would be below itself.",
                *_path(write, uuid),
                "parent_provider_uuid",
            )
    return levels[:-1]


def _check_root(write: TreeWrite, parent: str | None) -> None:
    if parent is not None and write.root_uuid in write.providers:
        raise TreeMalformed(
            f"{write.root_uuid} is the root of the tree and has no parent; to put the tree below "
            "another provider, write the tree of that one.",
            *_path(write, write.root_uuid),
            "parent_provider_uuid",
        )


def _misplacement(write: TreeWrite, uuid: str, parent: str | None) -> TreeMalformed:
    path = (*_path(write, uuid), "parent_provider_uuid")
    if parent is None:
        return TreeMalformed(
            f"Only the root {write.root_uuid} has no parent; to make {uuid} a root, write the tree "
            "of that uuid.",
            *path,
        )
    return TreeMalformed(
        f"The parent {parent} is not a resource provider of the tree as it would be.", *path
    )


def _path(write: TreeWrite, uuid: str) -> tuple[str, int]:
    return "providers", list(write.providers).index(uuid)


def _has_children(uuid: str, children: list[str]) -> TreeContradiction:
    return TreeContradiction(
        Reason.PROVIDER_HAS_CHILDREN,
        f"Resource provider {uuid} has child providers that the request leaves below it: "
        f"{', '.join(children[:8])}.",
        provider=uuid,
    )
