"""The tree of resource providers of a host, as drivers read and change it.

The import path `compute_agent.provider_tree.ProviderTree` is part of the driver contract.
"""

from compute_agent.provider_tree.provider import (
    ASPECTS,
    MAX_NAME,
    SHARING_TRAIT,
    PlacementProvider,
    ProviderData,
    Resource,
    child_uuid,
    provider_name,
)
from compute_agent.provider_tree.tree import ProviderTree

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
