"""Everything in which a write of a tree contradicts what is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from placement_server.store.providers import inventory_rows
from placement_server.store.transactions.transaction import WriteTransaction
from placement_server.store.trees import holdings, new_use, structure_rows, tree_rows
from placement_server.store.trees.holdings import HeldInTree
from placement_server.store.trees.new_use import Holder
from placement_server.store.trees.plan import StockKey, TreePlan
from placement_server.store.trees.scope import Scope
from placement_server.store.trees.tree import TreeProvider
from placement_server.store.trees.tree_write import (
    Reason,
    TreeConflicts,
    TreeContradiction,
    TreeWrite,
)


def refuse(
    tx: WriteTransaction,
    write: TreeWrite,
    scope: Scope,
    changes: TreePlan,
    new_holdings: Sequence[HeldInTree],
    providers: Sequence[TreeProvider],
    class_ids: Mapping[str, int],
) -> None:
    """Raise everything that contradicts what is stored.

    :raises TreeConflicts: something does.
    """
    deleted_uuids = {provider.uuid for provider in changes.deleted_providers}
    conflicts = [
        *changes.conflicts,
        *_elsewhere(write, scope, providers),
        *_taken_names(tx, changes),
        *holdings.generation_conflicts(new_holdings),
        *new_use.use_conflicts(_holders(tx, scope, changes), write.holdings.keys(), deleted_uuids),
        *new_use.claim_conflicts(
            new_holdings, changes.stock, _use_before(tx, scope, changes, class_ids), class_ids
        ),
    ]
    if conflicts:
        raise TreeConflicts(conflicts)


def _elsewhere(
    write: TreeWrite, scope: Scope, providers: Sequence[TreeProvider]
) -> list[TreeContradiction]:
    """Return the providers to delete that are in other trees."""
    absent = set(write.absent)
    return [
        TreeContradiction(
            Reason.PROVIDER_ELSEWHERE,
            f"Resource provider {provider.uuid} is in another tree, so it is not deleted here.",
            provider=provider.uuid,
        )
        for provider in providers
        if provider.uuid in absent and provider.uuid not in scope.providers
    ]


def _taken_names(tx: WriteTransaction, changes: TreePlan) -> list[TreeContradiction]:
    """Return the new names that providers have which keep them."""
    wanted_names = changes.new_names
    conflicts = []
    for uuid, name in structure_rows.holders_of_names(tx, wanted_names):
        if uuid not in changes.leaving_names and uuid != wanted_names[name]:
            conflicts.append(
                TreeContradiction(
                    Reason.NAME_TAKEN,
                    f"Resource provider {wanted_names[name]} cannot be named {name}: resource "
                    f"provider {uuid} has that name.",
                    provider=wanted_names[name],
                )
            )
    return conflicts


def _holders(tx: WriteTransaction, scope: Scope, changes: TreePlan) -> list[Holder]:
    """Return who holds what of inventories and providers that would vanish."""
    deleted_uuids = {provider.uuid for provider in changes.deleted_providers}
    vanishing = {uuid for uuid, _ in changes.removed_inventories} | deleted_uuids
    return [
        (item.consumer.uuid, uuid, name, amount)
        for item in tree_rows.holdings(tx, [scope.providers[uuid] for uuid in sorted(vanishing)])
        for uuid, amounts in item.amounts.items()
        for name, amount in amounts.items()
        if uuid in deleted_uuids or (uuid, name) in changes.removed_inventories
    ]


def _use_before(
    tx: WriteTransaction, scope: Scope, changes: TreePlan, classes: Mapping[str, int]
) -> dict[StockKey, int]:
    """Return the use before the write of the inventories that there are after it.

    Software of old may have left allocations without inventory, of which one is added now.
    """
    used = {
        (uuid, name): inventory.used
        for uuid, provider in scope.providers.items()
        for name, inventory in provider.stock.items()
    }
    added_use = {
        (scope.providers[uuid].id, classes[name]): (uuid, name)
        for uuid, name in changes.records
        if uuid in scope.providers and (uuid, name) not in used
    }
    sums = inventory_rows.sum_allocations(tx, added_use)
    used.update((added_use[key], amount) for key, amount in sums.items())
    return used
