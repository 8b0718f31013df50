"""Hosts whose agent takes claims."""

import pytest

from tests.unit.claims.claiming import Host


@pytest.fixture
def host(tmp_path) -> Host:
    return Host(tmp_path)


@pytest.fixture
def flat(tmp_path) -> Host:
    """A host whose CPUs and memory are on the root, not on its cells."""
    return Host(tmp_path, flat=True)
