"""The resource providers of one agent, as values in memory.

No HTTP happens here.  One object may hold several trees: that of a compute node and, as lone
roots, the sharing providers (trait `MISC_SHARES_VIA_AGGREGATE`) that reach it through a common
aggregate.  The shape is that of a forest of immutable records; here is their content, and which
of it placement may have changed since it was read:

    stale      uuid -> aspects (inventories, aggregates, traits) older than what placement has

A snapshot copies the containers and shares the records, so it costs a pointer per provider and is
untouched by later edits of either side.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Self

from msgspec.structs import replace

from compute_agent.provider_tree.forest import ProviderForest
from compute_agent.provider_tree.inventory import (
    OPERATOR_KEYS,
    Inventory,
    complete_inventory,
    equal_inventories,
)
from compute_agent.provider_tree.provider import (
    ASPECTS,
    SHARING_TRAIT,
    PlacementProvider,
    ProviderData,
    Resource,
    canonical,
    frozen_resources,
    parents_first,
)


class ProviderTree(ProviderForest):
    """A provider forest with content.  Safe to use from several threads; copies share no lock.

    Methods that address a provider take its uuid or its name and raise ValueError when it is
    unknown.
    """

    def __init__(self) -> None:
        super().__init__()
        self._stale: dict[str, frozenset[str]] = {}

    def _take(self, other: Self) -> None:
        super()._take(other)
        self._stale = dict(other._stale)

    __hash__ = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProviderTree):
            return NotImplemented
        return self._stale == other._stale and bool(super().__eq__(other))

    def subtree(self, root: str) -> Self:
        with self._lock:
            tree_copy = super().subtree(root)
            tree_copy._stale = {
                u: aspects for u, aspects in self._stale.items() if u in tree_copy._by_uuid
            }
            return tree_copy

    def remove(self, name_or_uuid: str) -> None:
        """Remove a provider and all its descendants."""
        with self._lock:
            removed_uuids = self.get_provider_uuids(name_or_uuid)
            super().remove(name_or_uuid)
            for uuid in removed_uuids:
                self._stale.pop(uuid, None)

    # -- content ---------------------------------------------------------------------------------

    def has_inventory(self, name_or_uuid: str) -> bool:
        return bool(self.data(name_or_uuid).inventory)

    def has_traits(self, name_or_uuid: str, traits: Iterable[str]) -> bool:
        return self.data(name_or_uuid).traits.issuperset(traits)

    def in_aggregates(self, name_or_uuid: str, aggregates: Iterable[str]) -> bool:
        return self.data(name_or_uuid).aggregates.issuperset(aggregates)

    def has_sharing_provider(self, resource_class: str) -> bool:
        """Return whether some provider shares inventory of this class through its aggregates."""
        with self._lock:
            return any(
                SHARING_TRAIT in provider.traits and resource_class in provider.inventory
                for provider in self._by_uuid.values()
            )

    def has_inventory_changed(self, name_or_uuid: str, inventory: Inventory) -> bool:
        """Return whether `inventory`, completed, differs from what the provider has."""
        stored = self.data(name_or_uuid).inventory
        return not equal_inventories(complete_inventory(inventory, stored), stored)

    def update_inventory(
        self,
        name_or_uuid: str,
        inventory: Inventory,
        generation: int | None = None,
        *,
        operator_keys: Collection[str] = OPERATOR_KEYS,
    ) -> bool:
        """Replace the whole inventory; return whether that changed anything.

        A key missing from a record keeps the stored value when it is one of `operator_keys` and
        takes placement's default otherwise; to get the default for the former, write it.

        :raises ValueError: a record without `total` or with an unknown key.
        """
        with self._lock:
            provider = self._find(name_or_uuid)
            completed_inventory = complete_inventory(
                inventory, provider.inventory, operator_keys=operator_keys
            )
            has_changed = not equal_inventories(completed_inventory, provider.inventory)
            return self._store(provider, has_changed, generation, inventory=completed_inventory)

    def have_traits_changed(self, name_or_uuid: str, traits: Iterable[str]) -> bool:
        return self.data(name_or_uuid).traits != frozenset(traits)

    def update_traits(
        self, name_or_uuid: str, traits: Iterable[str], generation: int | None = None
    ) -> bool:
        """Replace the set of traits; return whether that changed anything."""
        with self._lock:
            provider = self._find(name_or_uuid)
            new_traits = frozenset(traits)
            return self._store(
                provider, new_traits != provider.traits, generation, traits=new_traits
            )

    def add_traits(self, name_or_uuid: str, *traits: str) -> None:
        with self._lock:
            self.update_traits(name_or_uuid, self._find(name_or_uuid).traits.union(traits))

    def remove_traits(self, name_or_uuid: str, *traits: str) -> None:
        with self._lock:
            self.update_traits(name_or_uuid, self._find(name_or_uuid).traits.difference(traits))

    def have_aggregates_changed(self, name_or_uuid: str, aggregates: Iterable[str]) -> bool:
        return self.data(name_or_uuid).aggregates != frozenset(aggregates)

    def update_aggregates(
        self, name_or_uuid: str, aggregates: Iterable[str], generation: int | None = None
    ) -> bool:
        """Replace the set of aggregates; return whether that changed anything."""
        with self._lock:
            provider = self._find(name_or_uuid)
            new_aggregates = frozenset(aggregates)
            return self._store(
                provider,
                new_aggregates != provider.aggregates,
                generation,
                aggregates=new_aggregates,
            )

    def add_aggregates(self, name_or_uuid: str, *aggregates: str) -> None:
        with self._lock:
            current = self._find(name_or_uuid).aggregates
            self.update_aggregates(name_or_uuid, current.union(aggregates))

    def remove_aggregates(self, name_or_uuid: str, *aggregates: str) -> None:
        with self._lock:
            current = self._find(name_or_uuid).aggregates
            self.update_aggregates(name_or_uuid, current.difference(aggregates))

    def have_resources_changed(
        self, name_or_uuid: str, resources: Mapping[str, Iterable[Resource]]
    ) -> bool:
        return self.data(name_or_uuid).resources != frozen_resources(resources)

    def update_resources(
        self,
        name_or_uuid: str,
        resources: Mapping[str, Iterable[Resource]],
        generation: int | None = None,
    ) -> bool:
        """Replace the named units of a provider; return whether that changed anything."""
        with self._lock:
            provider = self._find(name_or_uuid)
            new_resources = frozen_resources(resources)
            return self._store(
                provider, new_resources != provider.resources, generation, resources=new_resources
            )

    # -- state in placement ----------------------------------------------------------------------

    def populate_from_iterable(
        self,
        providers: Iterable[PlacementProvider],
        *,
        complete_tree_of: str | None = None,
    ) -> None:
        """Take in provider records as `GET /resource_providers` returns them, in any order.

        Parent, name and generation are taken from the input.  A provider whose generation moved,
        and one that was not here, is marked stale; its content stays until it has been read.
        Providers that are not in the input stay, except those in the tree of
        `complete_tree_of` (a uuid), which the input must hold whole.

        :raises ValueError: a parent is neither in the input nor here (all such are named),
            parents form a loop, or a name occurs twice.  Nothing has changed then.
        """
        incoming_records = {canonical(record["uuid"]): record for record in providers}
        with self._lock:
            known_providers = {uuid: self._by_uuid[uuid] for uuid in self.get_provider_uuids()}
            if complete_tree_of is not None and complete_tree_of in self._by_uuid:
                for uuid in self._walk(complete_tree_of):
                    if uuid not in incoming_records:
                        del known_providers[uuid]
            merged_tree = ProviderTree()
            merged_tree._stale = {
                u: aspects for u, aspects in self._stale.items() if u in known_providers
            }
            for uuid, record in incoming_records.items():
                known_provider = known_providers.get(uuid)
                if known_provider is None or known_provider.generation != record["generation"]:
                    merged_tree._stale[uuid] = frozenset(ASPECTS)
                known_providers[uuid] = replace(
                    known_provider or ProviderData(uuid, record["name"]),
                    name=record["name"],
                    generation=record["generation"],
                    parent_uuid=record.get("parent_provider_uuid"),
                )
            for provider in parents_first(known_providers, set(self._by_uuid)):
                merged_tree._insert(provider)
            self._by_uuid, self._by_name = merged_tree._by_uuid, merged_tree._by_name
            self._children, self._stale = merged_tree._children, merged_tree._stale

    def stale_aspects(self, name_or_uuid: str) -> frozenset[str]:
        """Return those of `ASPECTS` that placement may have changed since they were read."""
        with self._lock:
            return self._stale.get(self._find(name_or_uuid).uuid, frozenset())

    def stale_uuids(self) -> list[str]:
        """Return all providers with a stale aspect, parents before children."""
        with self._lock:
            return [uuid for uuid in self.get_provider_uuids() if uuid in self._stale]

    def mark_stale(self, name_or_uuid: str, aspects: Iterable[str] = ASPECTS) -> None:
        with self._lock:
            uuid = self._find(name_or_uuid).uuid
            if stale_aspects := self._stale.get(uuid, frozenset()).union(aspects):
                self._stale[uuid] = stale_aspects

    def mark_fresh(self, name_or_uuid: str, aspects: Iterable[str] = ASPECTS) -> None:
        """Record that these aspects of the provider are now as placement has them."""
        with self._lock:
            uuid = self._find(name_or_uuid).uuid
            remaining_aspects = self._stale.pop(uuid, frozenset()).difference(aspects)
            if remaining_aspects:
                self._stale[uuid] = remaining_aspects

    def set_generation(self, name_or_uuid: str, generation: int) -> None:
        """Store the generation that placement answered with."""
        with self._lock:
            self._store(self._find(name_or_uuid), False, generation)

    # -- inside ----------------------------------------------------------------------------------

    def _store(
        self, provider: ProviderData, has_changed: bool, generation: int | None, **content: Any
    ) -> bool:
        updates = content if has_changed else {}
        if generation is not None and generation != provider.generation:
            updates = {**updates, "generation": generation}
        if updates:
            self._by_uuid[provider.uuid] = replace(provider, **updates)
        return has_changed
