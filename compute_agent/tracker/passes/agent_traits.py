"""The traits that the agent itself owns, kept in step both ways in every pass.

Everything else on a provider belongs to drivers, operators or other services and is left alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from compute_agent.provider_tree import ProviderTree
from compute_agent.provider_tree.provider import SHARING_TRAIT, ProviderData
from compute_agent.provider_tree.trait_names import (
    COMPUTE_NODE,
    COMPUTE_STATUS_DISABLED,
    OWNER_NOVA,
)


def synchronise(
    tree: ProviderTree,
    root_uuid: str,
    *,
    capabilities: Mapping[str, bool],
    is_enabled: bool,
    owned_uuids: Collection[str],
) -> None:
    """Give the root what the driver can do and whether it may be used, and mark what is ours.

    :param capabilities: trait to whether the driver has the capability now; a trait that is not
        named is left as it is.
    :param owned_uuids: uuids of providers that this agent made or took over.
    """
    tree.add_traits(root_uuid, COMPUTE_NODE, *(t for t, has in capabilities.items() if has))
    tree.remove_traits(root_uuid, *(t for t, has in capabilities.items() if not has))
    if is_enabled:
        tree.remove_traits(root_uuid, COMPUTE_STATUS_DISABLED)
    else:
        tree.add_traits(root_uuid, COMPUTE_STATUS_DISABLED)
    for uuid in tree.get_provider_uuids(root_uuid):
        if uuid in owned_uuids and SHARING_TRAIT not in tree.data(uuid).traits:
            tree.add_traits(uuid, OWNER_NOVA)


def is_marked(provider: ProviderData) -> bool:
    """Whether the provider carries the owner's trait."""
    return OWNER_NOVA in provider.traits
