"""ProviderTree: the resource providers one agent deals with, as values in memory.

It knows nothing of HTTP.  One object may hold several trees: that of a compute node and, as lone
roots, the sharing providers (trait ``MISC_SHARES_VIA_AGGREGATE``) that reach it through a common
aggregate.

    by uuid    uuid -> ProviderData          immutable; an edit replaces the record
    by name    name -> uuid
    children   uuid | None -> (uuid, ...)    in order of insertion; None holds the roots
    stale      uuid -> aspects (inventories, aggregates, traits) older than what placement has

A snapshot copies these four containers and shares the records, so it costs a pointer per provider
and is untouched by later edits of either side.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from compute_agent.inventory import (
    OPERATOR_KEYS,
    Inventory,
    complete_inventory,
    equal_inventories,
)
from compute_agent.provider import (
    ASPECTS,
    MAX_NAME,
    SHARING_TRAIT,
    PlacementProvider,
    ProviderData,
    Resource,
    canonical,
    child_uuid,
    frozen_resources,
    parents_first,
    provider_name,
)

__all__ = [
    "ASPECTS",
    "MAX_NAME",
    "SHARING_TRAIT",
    "PlacementProvider",
    "ProviderData",
    "ProviderTree",
    "Resource",
    "child_uuid",
    "provider_name",
]


class ProviderTree:
    """See the module.  Safe to use from several threads; a lock of its own, never shared by copies.

    Methods that address a provider take its uuid or its name and raise ValueError when there is
    none.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._by_uuid: dict[str, ProviderData] = {}
        self._by_name: dict[str, str] = {}
        self._children: dict[str | None, tuple[str, ...]] = {None: ()}
        self._stale: dict[str, frozenset[str]] = {}

    # -- copies ----------------------------------------------------------------------------------

    def snapshot(self) -> ProviderTree:
        """An independent tree with the same content; O(providers), records are shared."""
        copied = ProviderTree()
        with self._lock:
            copied._by_uuid = dict(self._by_uuid)
            copied._by_name = dict(self._by_name)
            copied._children = dict(self._children)
            copied._stale = dict(self._stale)
        return copied

    def __copy__(self) -> ProviderTree:
        return self.snapshot()

    def __deepcopy__(self, memo: dict[int, Any]) -> ProviderTree:
        return self.snapshot()

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return {key: value for key, value in self.__dict__.items() if key != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.RLock()

    def subtree(self, root: str) -> ProviderTree:
        """An independent tree that holds only the tree of ``root``.

        :raises ValueError: ``root`` is unknown or is not a root.
        """
        with self._lock:
            found = self._find(root)
            if found.parent_uuid is not None:
                raise ValueError(f"provider {found.name} ({found.uuid}) is not a root")
            copied = ProviderTree()
            for uuid in self._walk(found.uuid):
                copied._insert(self._by_uuid[uuid])
                if uuid in self._stale:
                    copied._stale[uuid] = self._stale[uuid]
            return copied

    # -- reading ---------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._by_uuid)

    def exists(self, name_or_uuid: str) -> bool:
        with self._lock:
            return name_or_uuid in self._by_uuid or name_or_uuid in self._by_name

    def data(self, name_or_uuid: str) -> ProviderData:
        """The provider as it is now; safe to keep."""
        with self._lock:
            return self._find(name_or_uuid)

    @property
    def roots(self) -> list[ProviderData]:
        with self._lock:
            return [self._by_uuid[uuid] for uuid in self._children[None]]

    def get_provider_uuids(self, name_or_uuid: str | None = None) -> list[str]:
        """Uuids of the subtree of one provider, or of everything; parents before children."""
        with self._lock:
            if name_or_uuid is not None:
                return list(self._walk(self._find(name_or_uuid).uuid))
            return [uuid for root in self._children[None] for uuid in self._walk(root)]

    def get_provider_uuids_in_tree(self, name_or_uuid: str) -> list[str]:
        """Uuids of the whole tree the provider is a member of; element 0 is the root."""
        with self._lock:
            return list(self._walk(self._root_of(self._find(name_or_uuid)).uuid))

    def root_of(self, name_or_uuid: str) -> ProviderData:
        """The root of the tree the provider is a member of."""
        with self._lock:
            return self._root_of(self._find(name_or_uuid))

    def children(self, name_or_uuid: str) -> list[ProviderData]:
        """The direct children, in order of insertion."""
        with self._lock:
            found = self._find(name_or_uuid)
            return [self._by_uuid[uuid] for uuid in self._children[found.uuid]]

    def has_inventory(self, name_or_uuid: str) -> bool:
        return bool(self.data(name_or_uuid).inventory)

    def has_traits(self, name_or_uuid: str, traits: Iterable[str]) -> bool:
        return self.data(name_or_uuid).traits.issuperset(traits)

    def in_aggregates(self, name_or_uuid: str, aggregates: Iterable[str]) -> bool:
        return self.data(name_or_uuid).aggregates.issuperset(aggregates)

    def has_sharing_provider(self, resource_class: str) -> bool:
        """Whether some provider shares inventory of this class through its aggregates."""
        with self._lock:
            return any(
                SHARING_TRAIT in provider.traits and resource_class in provider.inventory
                for provider in self._by_uuid.values()
            )

    # -- structure -------------------------------------------------------------------------------

    def new_root(self, name: str, uuid: str, generation: int | None = None) -> str:
        """Add a root; its uuid.

        :raises ValueError: the uuid or the name is taken or malformed.
        """
        with self._lock:
            return self._insert(ProviderData(canonical(uuid), name, generation))

    def new_child(
        self,
        name: str,
        parent: str,
        uuid: str | None = None,
        generation: int | None = None,
        *,
        stable_key: str | None = None,
    ) -> str:
        """Add a child; its uuid.

        Without ``uuid`` it is derived from the root's uuid and ``stable_key``, else the part of
        the name after the root's name, so that it survives a rename of the host.

        :raises ValueError: the uuid or the name is taken or malformed, or there is no such parent.
        """
        with self._lock:
            above = self._find(parent)
            if uuid is None:
                root = self._root_of(above)
                key = stable_key or name.removeprefix(root.name) or name
                uuid = child_uuid(root.uuid, key)
            return self._insert(ProviderData(canonical(uuid), name, generation, above.uuid))

    def remove(self, name_or_uuid: str) -> None:
        """Remove a provider and all its descendants."""
        with self._lock:
            found = self._find(name_or_uuid)
            self._unlink(found)
            for uuid in list(self._walk(found.uuid)):
                del self._by_name[self._by_uuid.pop(uuid).name]
                del self._children[uuid]
                self._stale.pop(uuid, None)

    def move(self, name_or_uuid: str, new_parent: str | None) -> None:
        """Put a provider with its descendants under another parent; None makes it a root.

        :raises ValueError: either is unknown, or the new parent is the provider or a descendant
            of it.
        """
        with self._lock:
            found = self._find(name_or_uuid)
            target = None if new_parent is None else self._find(new_parent).uuid
            if target == found.parent_uuid:
                return
            if target is not None and target in set(self._walk(found.uuid)):
                raise ValueError(
                    f"provider {found.name} ({found.uuid}) cannot move under itself or a descendant"
                )
            self._unlink(found)
            self._by_uuid[found.uuid] = replace(found, parent_uuid=target)
            self._children[target] += (found.uuid,)

    def rename(self, name_or_uuid: str, new_name: str) -> None:
        """Give a provider another name.

        :raises ValueError: the provider is unknown, or the name is taken or malformed.
        """
        with self._lock:
            found = self._find(name_or_uuid)
            if new_name == found.name:
                return
            self._check_name(new_name)
            del self._by_name[found.name]
            self._by_name[new_name] = found.uuid
            self._by_uuid[found.uuid] = replace(found, name=new_name)

    # -- content ---------------------------------------------------------------------------------

    def has_inventory_changed(
        self,
        name_or_uuid: str,
        inventory: Inventory,
        *,
        operator_keys: Collection[str] = OPERATOR_KEYS,
    ) -> bool:
        """Whether ``inventory``, completed, differs from what the provider has."""
        stored = self.data(name_or_uuid).inventory
        completed = complete_inventory(inventory, stored, operator_keys=operator_keys)
        return not equal_inventories(completed, stored)

    def update_inventory(
        self,
        name_or_uuid: str,
        inventory: Inventory,
        generation: int | None = None,
        *,
        operator_keys: Collection[str] = OPERATOR_KEYS,
    ) -> bool:
        """Replace the whole inventory; whether that changed anything.

        A key missing from a record keeps the stored value when it is one of ``operator_keys`` and
        takes placement's default otherwise; say the default to get the default.

        :raises ValueError: a record without ``total`` or with an unknown key.
        """
        with self._lock:
            found = self._find(name_or_uuid)
            completed = complete_inventory(inventory, found.inventory, operator_keys=operator_keys)
            changed = not equal_inventories(completed, found.inventory)
            return self._store(found, changed, generation, inventory=completed)

    def have_traits_changed(self, name_or_uuid: str, traits: Iterable[str]) -> bool:
        return self.data(name_or_uuid).traits != frozenset(traits)

    def update_traits(
        self, name_or_uuid: str, traits: Iterable[str], generation: int | None = None
    ) -> bool:
        """Replace the set of traits; whether that changed anything."""
        with self._lock:
            found = self._find(name_or_uuid)
            wanted = frozenset(traits)
            return self._store(found, wanted != found.traits, generation, traits=wanted)

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
        """Replace the set of aggregates; whether that changed anything."""
        with self._lock:
            found = self._find(name_or_uuid)
            wanted = frozenset(aggregates)
            return self._store(found, wanted != found.aggregates, generation, aggregates=wanted)

    def add_aggregates(self, name_or_uuid: str, *aggregates: str) -> None:
        with self._lock:
            held = self._find(name_or_uuid).aggregates
            self.update_aggregates(name_or_uuid, held.union(aggregates))

    def remove_aggregates(self, name_or_uuid: str, *aggregates: str) -> None:
        with self._lock:
            held = self._find(name_or_uuid).aggregates
            self.update_aggregates(name_or_uuid, held.difference(aggregates))

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
        """Replace the named units of a provider; whether that changed anything."""
        with self._lock:
            found = self._find(name_or_uuid)
            wanted = frozen_resources(resources)
            return self._store(found, wanted != found.resources, generation, resources=wanted)

    # -- what placement says ---------------------------------------------------------------------

    def populate_from_iterable(
        self,
        providers: Iterable[PlacementProvider],
        *,
        complete_tree_of: str | None = None,
    ) -> None:
        """Take in provider records as ``GET /resource_providers`` returns them, in any order.

        Parent, name and generation are taken from the input.  A provider whose generation moved,
        and one that was not here, is marked stale; what it holds stays until it has been read.
         Providers that are not in the input stay, except those in the tree of
        ``complete_tree_of`` (a uuid), which the input is said to hold whole.

        :raises ValueError: a parent is neither in the input nor here (all such are named),
            parents form a loop, or a name is given twice.  Nothing has changed then.
        """
        incoming = {canonical(record["uuid"]): record for record in providers}
        with self._lock:
            kept = {uuid: self._by_uuid[uuid] for uuid in self.get_provider_uuids()}
            if complete_tree_of is not None and complete_tree_of in self._by_uuid:
                for uuid in self._walk(complete_tree_of):
                    if uuid not in incoming:
                        del kept[uuid]
            merged = ProviderTree()
            merged._stale = {u: held for u, held in self._stale.items() if u in kept}
            for uuid, record in incoming.items():
                old = kept.get(uuid)
                if old is None or old.generation != record["generation"]:
                    merged._stale[uuid] = frozenset(ASPECTS)
                kept[uuid] = replace(
                    old or ProviderData(uuid, record["name"]),
                    name=record["name"],
                    generation=record["generation"],
                    parent_uuid=record.get("parent_provider_uuid"),
                )
            for provider in parents_first(kept, set(self._by_uuid)):
                merged._insert(provider)
            self._by_uuid, self._by_name = merged._by_uuid, merged._by_name
            self._children, self._stale = merged._children, merged._stale

    def stale_aspects(self, name_or_uuid: str) -> frozenset[str]:
        """Which of ``ASPECTS`` placement may have changed since they were read."""
        with self._lock:
            return self._stale.get(self._find(name_or_uuid).uuid, frozenset())

    def stale_uuids(self) -> list[str]:
        """All providers with a stale aspect, parents before children."""
        with self._lock:
            return [uuid for uuid in self.get_provider_uuids() if uuid in self._stale]

    def mark_stale(self, name_or_uuid: str, aspects: Iterable[str] = ASPECTS) -> None:
        with self._lock:
            uuid = self._find(name_or_uuid).uuid
            if marked := self._stale.get(uuid, frozenset()).union(aspects):
                self._stale[uuid] = marked

    def mark_fresh(self, name_or_uuid: str, aspects: Iterable[str] = ASPECTS) -> None:
        """Say that these aspects of the provider are now as placement has them."""
        with self._lock:
            uuid = self._find(name_or_uuid).uuid
            left = self._stale.pop(uuid, frozenset()).difference(aspects)
            if left:
                self._stale[uuid] = left

    def set_generation(self, name_or_uuid: str, generation: int) -> None:
        """Store the generation that placement answered with."""
        with self._lock:
            self._store(self._find(name_or_uuid), False, generation)

    # -- inside ----------------------------------------------------------------------------------

    def _find(self, name_or_uuid: str) -> ProviderData:
        found = self._by_uuid.get(name_or_uuid)
        if found is None:
            uuid = self._by_name.get(name_or_uuid)
            if uuid is None:
                raise ValueError(f"no such provider: {name_or_uuid}")
            found = self._by_uuid[uuid]
        return found

    def _root_of(self, provider: ProviderData) -> ProviderData:
        while provider.parent_uuid is not None:
            provider = self._by_uuid[provider.parent_uuid]
        return provider

    def _walk(self, uuid: str) -> Iterator[str]:
        pending = [uuid]
        while pending:
            current = pending.pop()
            yield current
            pending.extend(reversed(self._children[current]))

    def _check_name(self, name: str) -> None:
        if not 1 <= len(name) <= MAX_NAME:
            raise ValueError(f"a provider's name has 1 to {MAX_NAME} characters, not {len(name)}")
        if name in self._by_name:
            raise ValueError(f"name {name} is taken by provider {self._by_name[name]}")

    def _insert(self, provider: ProviderData) -> str:
        if provider.uuid in self._by_uuid:
            taken = self._by_uuid[provider.uuid]
            raise ValueError(f"uuid {provider.uuid} is taken by provider {taken.name}")
        self._check_name(provider.name)
        self._by_uuid[provider.uuid] = provider
        self._by_name[provider.name] = provider.uuid
        self._children[provider.uuid] = ()
        self._children[provider.parent_uuid] += (provider.uuid,)
        return provider.uuid

    def _unlink(self, provider: ProviderData) -> None:
        siblings = self._children[provider.parent_uuid]
        self._children[provider.parent_uuid] = tuple(u for u in siblings if u != provider.uuid)

    def _store(
        self, found: ProviderData, changed: bool, generation: int | None, **content: Any
    ) -> bool:
        updates = content if changed else {}
        if generation is not None and generation != found.generation:
            updates = {**updates, "generation": generation}
        if updates:
            self._by_uuid[found.uuid] = replace(found, **updates)
        return changed
