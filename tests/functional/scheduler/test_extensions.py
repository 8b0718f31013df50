"""The scheduler with a placement that announces extensions, and with one that does not."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from compute_agent.placement.transports.in_process import InProcessTransport
from compute_agent.placement.transports.transport import Request, Response, Transport
from compute_agent.request.flavor import RequestOptions
from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.fleet.aggregates import Aggregate, Aggregates, FixedAggregates
from compute_agent.scheduler.placement.client import PlacementClient
from compute_agent.scheduler.search.search import HostSearch, HostSearchOptions
from compute_agent.testing.transports import RecordingTransport
from tests.functional.either_placement import ours
from tests.functional.scheduler.moving import World
from tests.unit.scheduler.specs import spec

NUMA = "HW_NUMA_ROOT"


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> InProcessTransport:
    return InProcessTransport(ours(tmp_path_factory.mktemp("placement")))


class Hosts:
    """Nested hosts in a placement, told from others by a trait."""

    def __init__(self, transport: Any, tmp_path: Path) -> None:
        self.world = World(transport, tmp_path / "journal")
        self.trait = f"CUSTOM_T{uuid.uuid4().hex[:12].upper()}"
        self.zone = str(uuid.uuid4())

    def nested(self, name: str, *cells: int, zone: bool = False) -> None:
        aggregates = (self.zone,) if zone else ()
        self.world.provider(name, {}, self.trait, "COMPUTE_NODE", aggregates=aggregates)
        for index, vcpus in enumerate(cells):
            cell, card = f"{name}{index}", f"{name}{index}card"
            self.world.provider(cell, {"VCPU": vcpus}, NUMA, parent=name)
            self.world.provider(card, {"VGPU": 1}, parent=cell)

    def found(
        self, transport: Transport, asked: RequestSpec, *, use: bool, limit: int = 1000
    ) -> tuple[set[tuple[str, ...]], list[str]]:
        """The providers of each candidate, by short name, and the questions that were asked."""
        zones = FixedAggregates(
            Aggregates((Aggregate(self.zone, metadata={"availability_zone": "az"}),))
        )
        recorded = RecordingTransport(transport)
        options = HostSearchOptions(RequestOptions(limit=limit), aggregates=zones)
        client = PlacementClient(recorded, use_extensions=use)
        hosts = HostSearch(client, options).find(asked).hosts
        names = self.world.names
        return (
            {
                tuple(sorted(names[uuid] for uuid in candidate.allocations))
                for host in hosts
                for candidate in host.candidates
            },
            [path for path in recorded.requests if "candidates" in path],
        )

    def asked(self, **extra: str) -> RequestSpec:
        return spec({"root_required": self.trait, **extra}, vcpus=4, memory_mb=0, root_gb=0)


class RolledBackPlacement:
    """Placement that has extensions until it is replaced by one that has none."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.back = False

    def send(self, request: Request) -> Response:
        if not self.back:
            return self._transport.send(request)
        response = self._transport.send(replace(request, extensions=None))
        if request.path != "/":
            return response
        document = json.loads(response.content)
        document.pop("extensions", None)
        return replace(response, content=json.dumps(document).encode())


@pytest.fixture
def hosts(extended: InProcessTransport, tmp_path: Path) -> Hosts:
    return Hosts(extended, tmp_path)


TWO_NODES = {"hw:numa_nodes": "2"}
FAR_CARD = {
    "hw:numa_nodes": "1",
    "resources_CARD:VGPU": "1",
    "same_subtree_far": "_NUMA0,!_CARD",
}


@pytest.mark.parametrize("asked", [TWO_NODES, FAR_CARD, {}])
def test_candidates_are_the_same_with_extensions_and_without(
    hosts: Hosts, extended: InProcessTransport, asked: dict[str, str]
) -> None:
    hosts.nested("a", 4, 4, 4)
    hosts.nested("b", 4)
    request = hosts.asked(**asked)
    with_them, _ = hosts.found(extended, request, use=True)
    without, questions = hosts.found(extended, request, use=False)
    assert with_them == without
    assert with_them
    assert not any("isolate=" in question or "!_" in question for question in questions)


def test_a_device_is_kept_off_the_cell_of_the_guest(
    hosts: Hosts, extended: InProcessTransport
) -> None:
    hosts.nested("a", 4, 1)
    request = hosts.asked(**FAR_CARD)
    for use in (True, False):
        assert hosts.found(extended, request, use=use)[0] == {("a0", "a1card")}


def test_with_extensions_a_limit_is_not_spent_on_what_cannot_be_used(
    hosts: Hosts, extended: InProcessTransport
) -> None:
    hosts.nested("a", 8, 8)
    hosts.nested("b", 8, 8)
    found, questions = hosts.found(extended, hosts.asked(**TWO_NODES), use=True, limit=2)
    assert found == {("a0", "a1"), ("b0", "b1")}
    assert any("isolate=_NUMA0,_NUMA1" in question for question in questions)


def test_a_zone_binds_the_host_where_all_resources_are_on_providers_below_it(
    hosts: Hosts, extended: InProcessTransport
) -> None:
    hosts.nested("in", 4, zone=True)
    hosts.nested("out", 4)
    asked = spec(
        {"root_required": hosts.trait, "resources_CARD:VGPU": "1"},
        vcpus=0,
        memory_mb=0,
        root_gb=0,
        availability_zone="az",
    )
    found, [question] = hosts.found(extended, asked, use=True)
    assert found == {("in0card",)}
    assert f"root_member_of=in:{hosts.zone}" in question
    cpus = spec(
        {"root_required": hosts.trait},
        vcpus=4,
        memory_mb=0,
        root_gb=0,
        availability_zone="az",
    )
    for use in (True, False):
        assert hosts.found(extended, cpus, use=use)[0] == {("in0",)}


def test_a_placement_that_announces_none_is_asked_in_the_plain_api(
    published: Transport, tmp_path: Path
) -> None:
    hosts = Hosts(published, tmp_path)
    hosts.nested("a", 4, 1, zone=True)
    found, questions = hosts.found(published, hosts.asked(**FAR_CARD), use=True)
    assert found == {("a0", "a1card")}
    assert not any("!_" in question for question in questions)
    zoned = spec(
        {"root_required": hosts.trait}, vcpus=4, memory_mb=0, root_gb=0, availability_zone="az"
    )
    found, questions = hosts.found(published, zoned, use=True)
    assert found == {("a0",)}
    assert not any("root_member_of" in question for question in questions)


def test_a_placement_that_was_rolled_back_is_asked_in_the_plain_api(
    hosts: Hosts, extended: InProcessTransport
) -> None:
    hosts.nested("a", 4, 1)
    placement = RolledBackPlacement(extended)
    client = PlacementClient(placement)
    asked = hosts.asked(**FAR_CARD)
    search = HostSearch(client, HostSearchOptions())
    [before] = search.find(asked).hosts
    placement.back = True
    [after] = search.find(asked).hosts
    assert after.candidates == before.candidates
    assert not client.understands_extensions()
