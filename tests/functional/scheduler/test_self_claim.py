"""A host that allocates by itself, in a real placement, while schedulers do not claim yet."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from compute_agent.claims.checks import ClaimRequest
from compute_agent.claims.legacy_allocation import InstanceHolding, allocate
from compute_agent.errors import ComputeResourcesUnavailable
from compute_agent.placement.transports.in_process import InProcessTransport
from compute_agent.provider_tree import ProviderTree
from compute_agent.report.client import ReportClient
from tests.functional.either_placement import ours
from tests.functional.scheduler.moving import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(InProcessTransport(ours(tmp_path)), tmp_path / "journal")


def test_a_flavor_is_allocated_on_the_root_once_and_not_beyond_what_there_is(world: World) -> None:
    root = world.provider("a", {"VCPU": 4})
    tree = ProviderTree()
    tree.new_root("a", root)
    tree.update_inventory(root, {"VCPU": {"total": 4}})
    report = ReportClient(world.transport)
    first, second = str(uuid.uuid4()), str(uuid.uuid4())

    def needing(instance: str) -> ClaimRequest:
        needs = {"VCPU": 3, "DISK_GB": 5}
        return ClaimRequest(instance, needs=needs, project="p", user="u")

    assert allocate(report, needing(first), tree, root).amounts == {root: {"VCPU": 3}}
    assert world.held(first) == {"a": {"VCPU": 3}}
    assert world.type_of(first) == "INSTANCE"
    assert allocate(report, needing(first), tree, root).amounts == {root: {"VCPU": 3}}
    with pytest.raises(ComputeResourcesUnavailable, match="not enough for"):
        allocate(report, needing(second), tree, root)
    assert world.used() == {"a": {"VCPU": 3}}


def test_what_a_scheduler_claimed_meanwhile_counts(world: World) -> None:
    root = world.provider("a", {"VCPU": 4})
    tree = ProviderTree()
    tree.new_root("a", root)
    instance = str(uuid.uuid4())
    world.claim(instance, {root: {"VCPU": 1}})
    request = ClaimRequest(instance, {root: {"VCPU": 2}}, project="p", user="u")
    held = allocate(ReportClient(world.transport), request, tree, root)
    assert held == InstanceHolding({root: {"VCPU": 1}}, by_host=False)
