"""Ports and accelerators that come to a running instance and leave it, in a real placement."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from compute_agent.errors import AllocationMoveFailed, AllocationUpdateFailed
from compute_agent.placement.transports.in_process import InProcessTransport
from compute_agent.request.candidate_request import RequestGroup
from compute_agent.request.spec import RequestedGroup, RequestSpec
from compute_agent.scheduler.errors import MoveRefused, NoValidHost
from compute_agent.scheduler.moves.attachments import Attachments
from compute_agent.scheduler.placement.client import PlacementClient
from compute_agent.scheduler.search.search import HostSearch, HostSearchOptions
from compute_agent.testing.transports import RecordingTransport
from tests.functional.either_placement import ours
from tests.functional.scheduler.moving import World
from tests.unit.scheduler.specs import spec

BANDWIDTH = "NET_BW_EGR_KILOBIT_PER_SEC"
PORT = "44444444-4444-4444-4444-444444444444"


@pytest.fixture
def world(tmp_path: Path) -> World:
    new_world = World(InProcessTransport(ours(tmp_path)), tmp_path / "journal")
    for name in "ab":
        new_world.provider(name, {"VCPU": 4})
        for nic in "01":
            new_world.provider(f"{name}nic{nic}", {BANDWIDTH: 100}, parent=name)
    return new_world


@pytest.fixture
def instance(world: World) -> str:
    new = str(uuid.uuid4())
    [[selection]] = world.scheduler().select_destinations(
        spec(vcpus=2, memory_mb=0, root_gb=0), [new]
    )
    assert selection
    return new


def attachments(world: World, transport: Any = None) -> Attachments:
    client = PlacementClient(transport or world.transport)
    return Attachments(client, HostSearch(client, HostSearchOptions()))


def port(amount: int, *more: RequestedGroup) -> RequestSpec:
    groups = (RequestedGroup(PORT, RequestGroup({BANDWIDTH: amount})), *more)
    return spec(vcpus=0, memory_mb=0, root_gb=0, requested_groups=groups)


def test_a_port_is_added_on_the_instances_host_and_taken_away_again(
    world: World, instance: str
) -> None:
    [host] = world.held(instance)
    operations = attachments(world)
    first = operations.attach(port(60), instance)
    assert list(first.mappings) == [PORT]
    second = operations.attach(port(60), instance)
    held = world.held(instance)
    assert held == {
        host: {"VCPU": 2},
        f"{host}nic0": {BANDWIDTH: 60},
        f"{host}nic1": {BANDWIDTH: 60},
    }
    assert world.used() == held
    operations.detach(instance, first.allocations)
    operations.detach(instance, second.allocations)
    assert world.held(instance) == {host: {"VCPU": 2}}
    assert world.type_of(instance) == "INSTANCE"


def test_a_host_without_room_for_it_is_not_left_for_another(world: World, instance: str) -> None:
    before = world.held(instance)
    with pytest.raises(NoValidHost, match="no candidate for what is attached"):
        attachments(world).attach(port(101), instance)
    assert world.held(instance) == before


def test_a_card_that_others_fill_meanwhile_is_left_for_the_next(
    world: World, instance: str
) -> None:
    filled: list[str] = []

    def before(method: str, _path: str, body: Any) -> None:
        if method != "GET" and not filled:
            filled.extend(u for u in world.names if "nic" in world.names[u] and u in str(body))
            world.claim(str(uuid.uuid4()), {filled[0]: {BANDWIDTH: 60}})

    recorded = RecordingTransport(world.transport, before, None)
    [nic] = attachments(world, recorded).attach(port(60), instance).allocations
    assert world.held(instance).keys() == {world.names[nic], world.names[nic][0]}
    assert nic not in filled


def test_more_than_an_instance_holds_cannot_be_taken_away(world: World, instance: str) -> None:
    operations = attachments(world)
    added = operations.attach(port(60), instance)
    [nic] = added.allocations
    with pytest.raises(AllocationUpdateFailed, match="it holds 60 there"):
        operations.detach(instance, {nic: {BANDWIDTH: 61}})
    operations.detach(instance, {nic: {BANDWIDTH: 20}})
    assert world.held(instance)[world.names[nic]] == {BANDWIDTH: 40}


def test_an_instance_that_is_nowhere_gets_nothing(world: World) -> None:
    with pytest.raises(MoveRefused, match="on 0 hosts"):
        attachments(world).attach(port(1), str(uuid.uuid4()))


def test_a_change_by_somebody_else_is_not_overwritten(world: World, instance: str) -> None:
    operations = attachments(world)
    client = PlacementClient(world.transport)
    stale = client.holding(instance)
    operations.attach(port(60), instance)
    operations._placement.holding = lambda _consumer: stale  # type: ignore[method-assign]
    with pytest.raises(AllocationMoveFailed):
        operations.detach(instance, stale.allocations)
    assert len(world.held(instance)) == 2
