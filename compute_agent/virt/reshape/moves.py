"""Edits of allocations: amounts go from one provider, or class, to another; none is lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from msgspec import Struct

from compute_agent.discovery.facts import HostTopology
from compute_agent.provider_tree import ProviderData, ProviderTree
from compute_agent.provider_tree.inventory import Inventory
from compute_agent.provider_tree.trait_names import CUSTOM_DEVICE_MISSING
from compute_agent.virt.driver import Allocations, InstanceDevices
from compute_agent.virt.layout.application import Identities, descendants, is_owned
from compute_agent.virt.layout.wanted import HostLayout, WantedProvider

DevicesOf = Callable[[str], InstanceDevices | None]
"""Consumer uuid -> what its guest holds; None = not a guest of this host."""

Guests = Callable[[], Mapping[str, InstanceDevices] | None]
"""Holdings of each guest of the host, by uuid; asked only where it matters."""


class Unit(Struct, frozen=True):
    """A class on a provider: where amounts come from, or go to."""

    provider: str
    resource_class: str


class Situation(Struct, frozen=True, dict=True):
    """A tree as placement has it, beside the layout it should have."""

    tree: ProviderTree
    layout: HostLayout
    identities: Identities
    topology: HostTopology

    @cached_property
    def owned_providers(self) -> tuple[ProviderData, ...]:
        """Providers below the root that a layout made and that are still there."""
        root_name = self.layout.root.name
        return tuple(
            provider
            for provider in descendants(self.tree, self.identities.root)
            if CUSTOM_DEVICE_MISSING not in provider.traits and is_owned(provider, root_name)
        )

    @cached_property
    def wanted_providers(self) -> Mapping[str, WantedProvider]:
        """Providers of the layout, by the uuid that each has or will have."""
        uuids = self.identities.uuids
        return {uuids[provider.key]: provider for provider in self.layout.providers}

    @property
    def root(self) -> ProviderData:
        return self.tree.data(self.identities.root)

    def name_of(self, uuid: str) -> str:
        """Return the name a provider has, or will have."""
        if self.tree.exists(uuid):
            return self.tree.data(uuid).name
        wanted_provider = self.wanted_providers.get(uuid)
        return wanted_provider.name if wanted_provider else uuid

    def stored_inventory(self, uuid: str) -> Inventory:
        """Return what placement has of a provider: nothing where it lacks it."""
        return self.tree.data(uuid).inventory if self.tree.exists(uuid) else {}


def held_amount(record: Mapping[str, Any], unit: Unit) -> int:
    """Return how much of a unit a consumer's record has."""
    entry = record["allocations"].get(unit.provider, {})
    return int(entry.get("resources", {}).get(unit.resource_class, 0))


def shift(record: dict[str, Any], source: Unit, target: Unit, amount: int) -> None:
    """Move `amount` from one unit to another within a consumer's record.

    An entry of which nothing is left is removed, as placement refuses one without resources.
    """
    if amount == 0 or source == target:
        return
    entries = record["allocations"]
    resources = entries[source.provider]["resources"]
    resources[source.resource_class] -= amount
    if resources[source.resource_class] == 0:
        del resources[source.resource_class]
    if not resources:
        del entries[source.provider]
    received_amounts = entries.setdefault(target.provider, {"resources": {}})["resources"]
    received_amounts[target.resource_class] = (
        received_amounts.get(target.resource_class, 0) + amount
    )


def move_all(allocations: Allocations, source: Unit, target: Unit) -> None:
    """Move everything anybody holds of a unit."""
    for _consumer, record in sorted(allocations.items()):
        shift(record, source, target, held_amount(record, source))


def used_amount(allocations: Allocations, unit: Unit) -> int:
    """Return how much of a unit is held in all."""
    return sum(held_amount(record, unit) for record in allocations.values())


def held_by_provider(allocations: Allocations) -> dict[str, dict[str, int]]:
    """Return what is held, by provider and class."""
    sums: dict[str, dict[str, int]] = {}
    for record in allocations.values():
        for uuid, entry in record["allocations"].items():
            on_provider = sums.setdefault(uuid, {})
            for resource_class, amount in entry["resources"].items():
                on_provider[resource_class] = on_provider.get(resource_class, 0) + amount
    return sums
