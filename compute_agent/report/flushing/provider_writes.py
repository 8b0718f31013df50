"""Writes of one aspect of one provider that keep concurrent changes by others.

After a conflict the aspect of this one provider is read, merged and written again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from compute_agent import errors
from compute_agent.placement.connection import Retries
from compute_agent.placement.providers import Providers
from compute_agent.placement.traits_and_classes import Names
from compute_agent.provider_tree import ProviderData, ProviderTree
from compute_agent.provider_tree.inventory import FrozenRecord, Inventory, equal_inventories
from compute_agent.report.flushing.merge import merge_inventory, merge_set
from compute_agent.report.steps import SetAggregates, SetInventory, SetTraits
from compute_agent.report.tree_reader import TreeReader


@dataclass(frozen=True, slots=True)
class ProviderWrites:
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
        uuid, name = step.uuid, step.name

        def attempt() -> None:
            provider = self._fresh(uuid, "aggregates")
            merged_aggregates = merge_set(step.before, provider.aggregates, step.after)
            if merged_aggregates == provider.aggregates:
                return
            generation = _generation(provider)
            with self._noticing_others(uuid):
                answer = self.providers.put_aggregates(uuid, name, generation, merged_aggregates)
            self.live.update_aggregates(uuid, merged_aggregates, answer.generation)

        self.retries.while_conflicting(attempt)

    def set_traits(self, step: SetTraits) -> None:
        """Add and remove traits; those of others survive."""
        uuid, name = step.uuid, step.name

        def attempt() -> None:
            provider = self._fresh(uuid, "traits")
            ours = self.names.accepted_traits(step.after)
            merged_traits = merge_set(step.before, provider.traits, ours)
            if merged_traits == provider.traits:
                return
            generation = _generation(provider)
            with self._noticing_others(uuid):
                answer = self.providers.put_traits(uuid, name, generation, merged_traits)
            self.live.update_traits(uuid, merged_traits, answer.generation)

        self.retries.while_conflicting(attempt)

    def retire(self, uuid: str, name: str) -> None:
        """Reserve all of a provider that cannot be deleted, so that it takes nothing new."""

        def attempt() -> None:
            self.live.mark_stale(uuid, ["inventories"])
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
        if not self.live.exists(uuid):
            raise errors.ResourceProviderNotFound(
                f"provider {uuid} disappeared from placement with its parent"
            )
        if aspect in self.live.stale_aspects(uuid):
            with self._noticing_others(uuid):
                self.reader.reread(self.live, uuid, [aspect])
        return self.live.data(uuid)

    def _noticing_others(self, uuid: str) -> _DoubtMark:
        return _DoubtMark(self.live, uuid)


class _DoubtMark:
    """A context that marks what became doubtful by an error, and lets the error pass."""

    def __init__(self, live: ProviderTree, uuid: str) -> None:
        self._live = live
        self._uuid = uuid

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: Any) -> None:
        if isinstance(error, errors.ResourceProviderUpdateConflict):
            self._live.mark_stale(self._uuid)
        elif isinstance(error, errors.ResourceProviderNotFound) and self._live.exists(self._uuid):
            self._live.remove(self._uuid)
        elif isinstance(error, errors.PlacementUnavailable) and self._live.exists(self._uuid):
            # The write may have happened although its answer was lost.
            self._live.mark_stale(self._uuid)


def _generation(provider: ProviderData) -> int:
    if provider.generation is None:
        raise errors.ResourceProviderUpdateFailed(
            f"provider {provider.name} ({provider.uuid}) was never created in placement"
        )
    return provider.generation
