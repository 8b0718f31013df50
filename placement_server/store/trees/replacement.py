"""The replacement of a whole tree in one transaction.

1. lock the consumers that are named; lock the resource classes of the inventories, and create those
   that are new, and traits and aggregates;
2. write consumers, and delete what they hold in the tree;
3. lock the inventories of the tree, and of the subtrees that come from other trees;
4. lock the providers of all these trees, and read them: from here on nothing of them changes. What
   was read before must still be so, else the transaction is retried;
5. check the precondition, compare, refuse with everything that contradicts;
6. write providers, allocations, inventories, traits and aggregates.

So locks are taken in the order of all writers. The same request again finds nothing to change, and
writes no row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import bindparam

from placement_server.store.dialects import InventoryChange
from placement_server.store.providers import inventory_rows
from placement_server.store.providers.provider_rows import HOLD_PROVIDERS
from placement_server.store.tables import resource_providers
from placement_server.store.transactions.transaction import (
    STRUCTURE,
    USAGE,
    LostRace,
    WriteTransaction,
)
from placement_server.store.trees import (
    holdings,
    name_ids,
    new_use,
    structure_rows,
    tree_rows,
)
from placement_server.store.trees.holdings import HeldInTree
from placement_server.store.trees.name_ids import NameIds
from placement_server.store.trees.plan import TreePlan, plan
from placement_server.store.trees.refusals import refuse
from placement_server.store.trees.scope import Scope
from placement_server.store.trees.tree import Tree, TreeProvider
from placement_server.store.trees.tree_write import (
    GenerationRequired,
    ProviderWrite,
    TreeChanged,
    TreeMalformed,
    TreeWrite,
)

_HOLD: Final = HOLD_PROVIDERS.where(resource_providers.c.id.in_(bindparam("ids", expanding=True)))


def apply(tx: WriteTransaction, write: TreeWrite) -> Tree | None:
    """Make a tree what the request says; return it, or `None` when the request deletes all of it.

    :raises TreeMalformed: the providers would not be a tree, or a standard name does not exist.
    :raises GenerationRequired: a provider is in another tree and its generation is not named.
    :raises TreeChanged: the tree has another tag, or a provider another generation.
    :raises TreeConflicts: the request contradicts what is stored.
    """
    write = replace(write, providers=_as_stored(tx, write.providers))
    consumers, records = holdings.lock_and_read(tx, write.holdings)
    named_rows = tree_rows.read_named(tx, {write.root_uuid, *write.providers, *write.absent})
    involved_uuids = {write.root_uuid, *write.providers}
    root_ids = sorted(
        {provider.root_id for provider in named_rows if provider.uuid in involved_uuids}
    )
    shapes = tree_rows.read_shapes(tx, root_ids)
    scope = Scope.of(write, shapes)
    _require_generations(write, scope)
    ids = name_ids.ensure(tx, write)

    new_holdings = [
        holdings.compare(
            write.holdings[item.write.uuid],
            item,
            records.get(item.write.uuid),
            {provider.id: provider for provider in scope.providers.values()},
            ids.classes,
        )
        for item in consumers
    ]
    _require_members(write, scope, new_holdings)
    holdings.store_consumers(tx, new_holdings, scope.ids)

    stock = inventory_rows.hold_many(tx, scope.ids)
    tx.execute_among(_HOLD, "ids", [shape.id for shape in shapes])
    providers = tree_rows.read_providers(tx, root_ids)
    scope = _check_unchanged(Scope.of(write, providers), shapes, providers, stock.keys(), write)
    _check_precondition(write, scope)

    changes = plan(write, scope)
    _check_generations(write, scope, changes, new_holdings)
    refuse(tx, write, scope, changes, new_holdings, named_rows, ids.classes)
    return _store(tx, write, scope, changes, new_holdings, ids)


def _as_stored(
    tx: WriteTransaction, providers: Mapping[str, ProviderWrite]
) -> dict[str, ProviderWrite]:
    """Return the providers with allocation ratios as the database will return them."""
    return {
        uuid: target
        if target.inventories is None
        else replace(
            target,
            inventories={
                name: replace(
                    record,
                    allocation_ratio=inventory_rows.stored_ratio(tx, record.allocation_ratio),
                )
                for name, record in target.inventories.items()
            },
        )
        for uuid, target in providers.items()
    }


def _require_generations(write: TreeWrite, scope: Scope) -> None:
    unnamed_generations = {
        uuid: provider.generation
        for uuid, provider in scope.from_other_trees.items()
        if write.providers[uuid].generation is None
    }
    if unnamed_generations:
        raise GenerationRequired(unnamed_generations)


def _require_members(write: TreeWrite, scope: Scope, new_holdings: Sequence[HeldInTree]) -> None:
    """Check that the allocations are of providers that the tree has after the write."""
    members = (scope.providers.keys() | write.providers.keys()) - set(write.absent)
    for item in new_holdings:
        for uuid in item.write.amounts:
            if uuid not in members:
                raise TreeMalformed(
                    f"Resource provider {uuid} would not be in the tree.",
                    *("allocations", item.write.uuid, "allocations", uuid),
                )


def _check_unchanged(
    scope: Scope,
    shapes: Sequence[TreeProvider],
    providers: Sequence[TreeProvider],
    held_stock: Any,
    write: TreeWrite,
) -> Scope:
    """Check that nothing came or went between the reads and the locks.

    :raises LostRace: something did.
    """
    stock = {
        (inventory.provider_id, inventory.class_id)
        for provider in scope.providers.values()
        for inventory in provider.stock.values()
    }
    if stock != set(held_stock) or [_place(item) for item in shapes] != [
        _place(item) for item in providers
    ]:
        raise LostRace(
            f"The tree of resource provider {write.root_uuid} changed meanwhile.",
            uuids=[write.root_uuid],
        )
    return scope


def _place(provider: TreeProvider) -> tuple[str, int, int | None, int]:
    return provider.uuid, provider.id, provider.parent_id, provider.root_id


def _check_precondition(write: TreeWrite, scope: Scope) -> None:
    tree = None if scope.root_id is None else Tree.of(scope.root_id, scope.own.values())
    tag = None if tree is None else tree.tag()
    generations = {provider.uuid: provider.generation for provider in scope.own.values()}
    if write.tags is None:
        if tree is not None:
            raise TreeChanged(
                f"The tree of resource provider {write.root_uuid} exists already.",
                generations,
                tag,
            )
    elif tag is None or not _has_tag(write, tag):
        raise TreeChanged(
            f"The tree of resource provider {write.root_uuid} "
            + ("is not as it was read: read it again." if tag else "does not exist."),
            generations,
            tag,
        )


def _has_tag(write: TreeWrite, tag: str) -> bool:
    assert write.tags is not None
    return tag in write.tags


def _check_generations(
    write: TreeWrite, scope: Scope, changes: TreePlan, new_holdings: Sequence[HeldInTree]
) -> None:
    """Compare the generations that the request names, where anything of a provider changes.

    One that is to be taken from another tree, and was deleted there, is not created again.
    """
    changed_uuids = changes.changed_uuids | {
        uuid for item in new_holdings for uuid, _ in item.delta
    }
    checked_targets = [
        target for target in write.providers.values() if target.generation is not None
    ]
    missing_uuids = [
        target.uuid for target in checked_targets if target.uuid not in scope.providers
    ]
    moved_uuids = {
        target.uuid: scope.providers[target.uuid].generation
        for target in checked_targets
        if target.uuid in changed_uuids
        and target.uuid in scope.providers
        and target.generation != scope.providers[target.uuid].generation
    }
    if missing_uuids or moved_uuids:
        raise TreeChanged(
            "Resource providers have other generations than the request names, or do not exist: "
            f"{', '.join([*moved_uuids, *missing_uuids][:8])}.",
            moved_uuids,
            None if scope.root_id is None else Tree.of(scope.root_id, scope.own.values()).tag(),
        )


def _store(
    tx: WriteTransaction,
    write: TreeWrite,
    scope: Scope,
    changes: TreePlan,
    new_holdings: Sequence[HeldInTree],
    names: NameIds,
) -> Tree | None:
    """Write everything that changes; return the tree as it is then."""
    if changes.is_empty and not any(item.changes for item in new_holdings):
        # Without a root, the request deletes a tree that does not exist.
        return None if scope.root_id is None else Tree.of(scope.root_id, scope.own.values())
    provider_ids = {uuid: provider.id for uuid, provider in scope.providers.items()}
    root_id = _store_providers(tx, write, scope, changes, new_holdings, provider_ids)
    holdings.store_allocations(tx, new_holdings, provider_ids)
    _store_inventories(tx, scope, changes, new_holdings, names, provider_ids)
    for column, links, ids in (
        ("trait_id", changes.traits, names.traits),
        ("aggregate_id", changes.aggregates, names.aggregates),
    ):
        added_rows = [(provider_ids[uuid], ids[name]) for uuid, name in links.added_links]
        structure_rows.link(tx, column, added_rows, links.removed_links)
    _touch(tx, scope, changes, new_holdings, root_id)
    return None if root_id is None else tree_rows.read(tx, write.root_uuid)


def _touch(
    tx: WriteTransaction,
    scope: Scope,
    changes: TreePlan,
    new_holdings: Sequence[HeldInTree],
    root_id: int | None,
) -> None:
    """Record what changed, and which trees ended.

    :param root_id: `None` when the tree was deleted.
    """
    roots = scope.root_ids | ({root_id} if root_id is not None else set())
    if not changes.is_empty:
        tx.touch(roots, STRUCTURE)
    if any(item.changes for item in new_holdings):
        tx.touch(roots, USAGE)
    for provider in scope.providers.values():
        if provider.id == provider.root_id != root_id:
            tx.end_tree(provider.id, provider.uuid)


def _store_providers(
    tx: WriteTransaction,
    write: TreeWrite,
    scope: Scope,
    changes: TreePlan,
    new_holdings: Sequence[HeldInTree],
    provider_ids: dict[str, int],
) -> int | None:
    """Write the providers; return the id of the root, `None` when it was deleted.

    :param provider_ids: by uuid; those of new providers are added.
    """
    deleted_uuids = {provider.uuid for provider in changes.deleted_providers}
    new_names = changes.new_names
    leaving = [scope.providers[uuid] for uuid in changes.leaving_names]
    structure_rows.free_names(
        tx,
        [item for item in leaving if new_names.get(item.name, item.uuid) != item.uuid],
    )
    root_id = provider_ids.get(write.root_uuid)
    if changes.new_levels:
        root_id = structure_rows.create(tx, changes.new_levels, root_id, provider_ids)
    changed_uuids = changes.changed_uuids | {
        uuid for item in new_holdings if item.changes for uuid, _ in item.delta
    }
    structure_rows.change(
        tx,
        [
            provider
            for uuid, provider in scope.providers.items()
            if uuid in changed_uuids and uuid not in deleted_uuids
        ],
        {target.uuid: target for target in changes.renamed_providers},
        provider_ids,
    )
    if root_id is not None:
        strangers = [item.id for item in scope.providers.values() if item.root_id != root_id]
        structure_rows.reroot(tx, strangers, root_id)
    structure_rows.delete(tx, [provider_ids[uuid] for uuid in deleted_uuids])
    return None if write.root_uuid in deleted_uuids else root_id


def _store_inventories(
    tx: WriteTransaction,
    scope: Scope,
    changes: TreePlan,
    new_holdings: Sequence[HeldInTree],
    names: NameIds,
    provider_ids: Mapping[str, int],
) -> None:
    """Write the inventories, and the use of those that were there and stay."""
    deleted_uuids = {provider.uuid for provider in changes.deleted_providers}
    stock = {
        (inventory.provider_id, inventory.class_id): inventory
        for provider in scope.providers.values()
        for inventory in provider.stock.values()
    }
    removed_inventories = {
        key: item
        for key, item in changes.removed_inventories.items()
        if key[0] not in deleted_uuids
    }
    inventory_rows.remove(tx, removed_inventories.values())
    inventory_rows.write_many(
        tx,
        stock,
        {
            (provider_ids[uuid], names.classes[name]): record
            for (uuid, name), record in changes.records.items()
        },
    )
    removed_keys = {
        (item.provider_id, item.class_id) for item in changes.removed_inventories.values()
    }
    moves = [
        InventoryChange(stock[key].id, *key, delta)
        for key, delta in sorted(new_use.deltas(new_holdings, provider_ids).items())
        if key in stock and key not in removed_keys
    ]
    if tx.batches.change_inventories(tx.connection, moves) != len(moves):
        raise LostRace("An inventory of the tree changed although it was locked.")
