"""Directory of the resource providers, with their trees and which of them are hosts."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from compute_agent.placement.answers import RootedProvider
from compute_agent.placement.api import PlacementApi
from compute_agent.provider_tree.provider import SHARING_TRAIT
from compute_agent.provider_tree.trait_names import COMPUTE_NODE, OWNER_NOVA

HOST_TRAITS = (COMPUTE_NODE, OWNER_NOVA)
"""A root with one of these is a compute host's."""


class ListedProvider(Struct, frozen=True):
    """A provider as a listing shows it."""

    uuid: str
    name: str
    root: str


class ProviderDirectory(Struct, frozen=True):
    """All providers of one moment.

    :ivar sharing: providers that give their inventory to hosts through aggregates.
    :ivar hosts: roots that are marked as compute hosts.
    """

    providers: Mapping[str, ListedProvider]
    sharing: frozenset[str]
    hosts: frozenset[str]

    def name(self, uuid: str) -> str:
        """Return the provider's name, or its uuid where it is not in the listing."""
        return self.providers[uuid].name if uuid in self.providers else uuid

    def root(self, uuid: str) -> str:
        """Return the root of the provider's tree; an unlisted provider is its own root."""
        return self.providers[uuid].root if uuid in self.providers else uuid

    def is_shared(self, uuid: str) -> bool:
        """Whether the provider is outside of every host's tree, for several hosts to use."""
        return uuid in self.sharing and self.root(uuid) not in self.hosts

    @property
    def roots(self) -> list[ListedProvider]:
        return [provider for provider in self.providers.values() if provider.root == provider.uuid]


def read(placement: PlacementApi) -> ProviderDirectory:
    """Read the listing.

    :raises PlacementError: placement cannot be used.
    """
    providers = {
        body["uuid"]: ListedProvider(body["uuid"], body["name"], body["root_provider_uuid"])
        for body in _list(placement, "")
    }
    marked_uuids = {
        body["uuid"]
        for trait in HOST_TRAITS
        for body in _list(placement, f"required={trait}")
        if body["root_provider_uuid"] == body["uuid"]
    }
    sharing = frozenset(body["uuid"] for body in _list(placement, f"required={SHARING_TRAIT}"))
    return ProviderDirectory(providers, sharing, frozenset(marked_uuids - sharing))


def members_of(placement: PlacementApi, aggregate: str) -> list[str]:
    """Return the providers that are in an aggregate.

    :raises PlacementError: placement cannot be used.
    """
    return [body["uuid"] for body in _list(placement, f"member_of={aggregate}")]


def _list(placement: PlacementApi, query: str) -> list[RootedProvider]:
    return placement.providers.find(query, "Listing the resource providers")
