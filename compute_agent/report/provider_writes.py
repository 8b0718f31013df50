"""Writes of one aspect of one provider that keep concurrent changes by others.

After a conflict the aspect of this one provider is read, merged and written again: a three-way
merge of the state this agent read, the one it wants, and that in placement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from msgspec import Struct

from compute_agent import errors
from compute_agent.placement.api import PlacementApi
from compute_agent.placement.connection import Retries
from compute_agent.placement.providers import AtGeneration, Providers
from compute_agent.placement.traits_and_classes import Names
from compute_agent.provider_tree import ProviderData, ProviderTree
from compute_agent.provider_tree.inventory import (
    FrozenRecord,
    Inventory,
    InventoryRecord,
    equal_inventories,
    single_precision,
)
from compute_agent.report.steps import SetAggregates, SetInventory, SetTraits
from compute_agent.report.tree_reader import TreeReader

OPERATORS_OWN: Final = ("allocation_ratio", "reserved")
"""Keys an operator may change in placement while the agent is running."""


def merge_set(base: frozenset[str], theirs: frozenset[str], ours: frozenset[str]) -> frozenset[str]:
    """Return `theirs` with our additions and without our removals."""
    return (theirs | (ours - base)) - (base - ours)


def merge_inventory(base: Inventory, theirs: Inventory, ours: Inventory) -> FrozenRecord:
    """Merge an inventory: our classes win, classes that another writer added stay.

    A ratio or reserve that we left as it was follows an operator's change.
    """
    merged_inventory = {rc: record for rc, record in theirs.items() if rc not in base}
    for rc, record in ours.items():
        merged_inventory[rc] = _merge_record(base.get(rc), theirs.get(rc), record)
    return FrozenRecord(merged_inventory)


def _merge_record(
    base: InventoryRecord | None, theirs: InventoryRecord | None, ours: InventoryRecord
) -> InventoryRecord:
    if base is None or theirs is None:
        return ours
    followed_values = {
        key: theirs[key]
        for key in OPERATORS_OWN
        if single_precision(ours[key]) == single_precision(base[key])
    }
    return FrozenRecord({**ours, **followed_values})


class ProviderWrites(Struct, frozen=True):
    """Writes to the providers of one live tree, which is kept up to date with each of them.

    Every method raises `ResourceProviderUpdateConflict` after the last try,
    `ResourceProviderNotFound` when the provider is gone, and what placement refuses.
    """

    live: ProviderTree
    providers: Providers
    names: Names
    reader: TreeReader
    retries: Retries

    def set_inventory(self, step: SetInventory) -> None:
        """Replace an inventory; ratios and classes of others survive."""
        uuid, name = step.uuid, step.name

        def attempt() -> None:
            provider = self._fresh(uuid, "inventories")
            ours = self.names.accepted_inventory(step.after)
            merged_inventory = merge_inventory(step.before, provider.inventory, ours)
            self._put_inventory(uuid, name, provider, merged_inventory)

        self.retries.while_conflicting(attempt)

    def set_aggregates(self, step: SetAggregates) -> None:
        """Add and remove aggregates; those of others survive."""
        put, update = self.providers.put_aggregates, self.live.update_aggregates
        self._set_names(step, "aggregates", put, update)

    def set_traits(self, step: SetTraits) -> None:
        """Add and remove traits; those of others survive."""
        self._set_names(step, "traits", self.providers.put_traits, self.live.update_traits)

    def _set_names(
        self,
        step: SetAggregates | SetTraits,
        aspect: str,
        put: Callable[[str, str, int, frozenset[str]], AtGeneration[Any]],
        update: Callable[[str, frozenset[str], int], bool],
    ) -> None:
        uuid, name = step.uuid, step.name

        def attempt() -> None:
            provider = self._fresh(uuid, aspect)
            theirs = provider.traits if aspect == "traits" else provider.aggregates
            ours = self.names.accepted_traits(step.after) if aspect == "traits" else step.after
            merged_names = merge_set(step.before, theirs, ours)
            if merged_names == theirs:
                return
            with self._noticing_others(uuid):
                answer = put(uuid, name, _generation(provider), merged_names)
            update(uuid, merged_names, answer.generation)

        self.retries.while_conflicting(attempt)

    def retire(self, uuid: str, name: str) -> None:
        """Reserve all of a provider that cannot be deleted, so that it takes nothing new."""

        def attempt() -> None:
            provider = self._fresh(uuid, "inventories")
            reserved = FrozenRecord(
                {
                    rc: FrozenRecord({**record, "reserved": record["total"]})
                    for rc, record in provider.inventory.items()
                }
            )
            self._put_inventory(uuid, name, provider, reserved)

        self.retries.while_conflicting(attempt)

    def _put_inventory(
        self, uuid: str, name: str, provider: ProviderData, inventory: Inventory
    ) -> None:
        if equal_inventories(inventory, provider.inventory):
            return
        generation = _generation(provider)
        with self._noticing_others(uuid):
            answer = self.providers.put_inventories(uuid, name, generation, inventory)
        self.live.update_inventory(uuid, inventory, answer.generation, operator_keys=())

    def _fresh(self, uuid: str, aspect: str) -> ProviderData:
        check_exists(self.live, uuid)
        if aspect in self.live.stale_aspects(uuid):
            with self._noticing_others(uuid):
                self.reader.reread(self.live, uuid, [aspect])
        return self.live.data(uuid)

    @contextmanager
    def _noticing_others(self, uuid: str) -> Iterator[None]:
        """Mark what becomes doubtful by a conflict, and let the error pass."""
        try:
            yield
        except errors.ResourceProviderUpdateConflict:
            self.live.mark_stale(uuid)
            raise


def check_exists(live: ProviderTree, uuid: str) -> None:
    """Check that a provider is in the tree that was read last.

    :raises errors.ResourceProviderNotFound: another writer deleted it since the tree was planned.
    """
    if not live.exists(uuid):
        raise errors.ResourceProviderNotFound(f"provider {uuid} disappeared from placement")


def remove_tree(placement: PlacementApi, root_uuid: str, *, with_allocations: bool) -> None:
    """Delete the providers of a tree, if there are any.

    :param with_allocations: delete all allocations of their consumers before.
    :raises errors.ResourceProviderInUse: a provider has allocations.
    """
    providers_by_uuid = {
        provider["uuid"]: provider for provider in placement.providers.in_tree(root_uuid)
    }
    tree = ProviderTree()
    tree.populate_from_iterable(providers_by_uuid.values())
    if not tree.exists(root_uuid):
        return
    doomed_providers = [tree.data(uuid) for uuid in reversed(tree.get_provider_uuids(root_uuid))]
    if with_allocations:
        for provider in doomed_providers:
            for consumer in placement.providers.allocations(provider.uuid, provider.name):
                placement.allocations.delete_allocation(consumer, force=True)
    for provider in doomed_providers:
        placement.providers.delete(provider.uuid, provider.name)


def _generation(provider: ProviderData) -> int:
    if provider.generation is None:
        raise errors.ResourceProviderUpdateFailed(
            f"provider {provider.name} ({provider.uuid}) was never created in placement"
        )
    return provider.generation
