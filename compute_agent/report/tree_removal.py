"""Removal of a whole tree from placement, leaf first."""

from __future__ import annotations

from compute_agent.placement.api import PlacementApi
from compute_agent.provider_tree import ProviderTree


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
