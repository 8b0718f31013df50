"""Traits and resource classes: the names placement is known to have, and making those it lacks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable

from compute_agent import errors
from compute_agent.placement.providers import Providers
from compute_agent.provider_tree import ProviderTree
from compute_agent.provider_tree.inventory import FrozenRecord, Inventory
from compute_agent.provider_tree.trait_names import CUSTOM_PREFIX

LOG = logging.getLogger(__name__)


class Names:
    """What this process knows of placement's names; each is asked for and created at most once.

    A name that placement refuses is left out of what is written, and said once as an ERROR: one bad
    name must not keep the rest of a provider from being reported.
    """

    def __init__(self, providers: Providers) -> None:
        self._providers = providers
        self._lock = threading.Lock()
        self._traits: set[str] = set()
        self._classes: set[str] = set()
        self._refused_traits: set[str] = set()
        self._refused_classes: set[str] = set()

    @property
    def known_traits(self) -> frozenset[str]:
        """Names that need no asking: known to exist, or known to be refused."""
        with self._lock:
            return frozenset(self._traits | self._refused_traits)

    @property
    def known_classes(self) -> frozenset[str]:
        with self._lock:
            return frozenset(self._classes | self._refused_classes)

    def learn(self, tree: ProviderTree) -> None:
        """Everything used in a tree that was read from placement exists."""
        with self._lock:
            for uuid in tree.get_provider_uuids():
                provider = tree.data(uuid)
                self._traits.update(provider.traits)
                self._refused_traits.difference_update(provider.traits)
                self._classes.update(provider.inventory)
                self._refused_classes.difference_update(provider.inventory)

    def accepted_tree(self, tree: ProviderTree) -> ProviderTree:
        """Return a tree without the names that placement refuses: the same one if it has none."""
        accepted_tree = tree
        for uuid in tree.get_provider_uuids():
            provider = tree.data(uuid)
            traits = self.accepted_traits(provider.traits)
            inventory = self.accepted_inventory(provider.inventory)
            if traits == provider.traits and inventory is provider.inventory:
                continue
            if accepted_tree is tree:
                accepted_tree = tree.snapshot()
            accepted_tree.update_traits(uuid, traits)
            accepted_tree.update_inventory(uuid, inventory)
        return accepted_tree

    def accepted_traits(self, traits: Collection[str]) -> frozenset[str]:
        with self._lock:
            return frozenset(traits) - self._refused_traits

    def accepted_inventory(self, inventory: Inventory) -> Inventory:
        with self._lock:
            refused_classes = self._refused_classes.intersection(inventory)
        if not refused_classes:
            return inventory
        return FrozenRecord({rc: r for rc, r in inventory.items() if rc not in refused_classes})

    def ensure_traits(self, traits: Iterable[str], *, again: bool = False) -> None:
        """Make these traits exist where possible; those that cannot be are refused from now on.

        :param again: do not trust what was known: a trait was deleted.
        """
        with self._lock:
            if again:
                self._traits.difference_update(traits)
            unseen = set(traits) - self._traits - self._refused_traits
        if not unseen:
            return
        known_names = self._providers.known_traits(unseen)
        refusals: dict[str, str] = {}
        for trait in sorted(unseen - known_names):
            if not trait.startswith(CUSTOM_PREFIX):
                refusals[trait] = (
                    f"it is not a trait this placement knows and has no {CUSTOM_PREFIX} prefix"
                )
                continue
            try:
                self._providers.create_trait(trait)
            except errors.TraitCreationFailed as exc:
                if exc.status != 400:
                    raise
                refusals[trait] = exc.detail
        with self._lock:
            self._traits.update(unseen.difference(refusals))
            self._refused_traits.update(refusals)
        for trait, reason in refusals.items():
            LOG.error("Trait %s is left out of every provider: %s", trait, reason)

    def ensure_class(self, resource_class: str, *, again: bool = False) -> None:
        """Make this custom class exist; if placement refuses it, it is left out from now on."""
        with self._lock:
            if again:
                self._classes.discard(resource_class)
            if resource_class in self._classes or resource_class in self._refused_classes:
                return
        try:
            if not resource_class.startswith(CUSTOM_PREFIX):
                raise errors.InvalidResourceClass(
                    f"this placement does not know it. Upgrade placement to a release that does, "
                    "then restart the agent; or let the driver or the provider.yaml that reports "
                    f"it name it {CUSTOM_PREFIX}{resource_class}",
                    status=400,
                )
            self._providers.create_resource_class(resource_class)
        except errors.InvalidResourceClass as exc:
            if exc.status != 400:
                raise
            with self._lock:
                self._refused_classes.add(resource_class)
            LOG.error("Resource class %s is left out of every inventory: %s", resource_class, exc)
            return
        with self._lock:
            self._classes.add(resource_class)
