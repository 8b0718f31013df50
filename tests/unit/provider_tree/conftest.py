"""A tree of four providers."""

import pytest

from compute_agent.provider_tree import ProviderTree
from tests.unit.provider_tree.trees import ROOT


@pytest.fixture
def tree() -> ProviderTree:
    """host -> (host_NUMA0 -> host_GPU0), (host_NUMA1)."""
    tree = ProviderTree()
    tree.new_root("host", ROOT, 0)
    tree.new_child("host_NUMA0", "host", generation=0)
    tree.new_child("host_NUMA1", "host", generation=0)
    tree.new_child("host_GPU0", "host_NUMA0", generation=0)
    return tree
