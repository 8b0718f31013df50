"""A driver is handed the same allocations by every placement, and however they are read."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from compute_agent.placement.transports.transport import Request, Transport
from compute_agent.state import identity
from compute_agent.virt.fake.topology import MachineSize, fake_topology
from tests.fixtures.allocations import claim_body
from tests.fixtures.plain_trees import make_provider
from tests.functional.agent.in_process import Node
from tests.functional.either_placement import placement_of

ROADS = {
    "whole trees": ("ours", True),
    "plain reads": ("ours", False),
    "the published placement": ("published", True),
}
HOST, POOL, ELSEWHERE, POOLED, GUEST, MOVING, OLD, STRANGER = (
    f"00000000-0000-4000-8000-00000000000{number}" for number in range(1, 9)
)
SIZE = MachineSize(cells=2, gpus=1, nics=0)
HELD: dict[str, tuple[str | None, dict[str, dict[str, int]]]] = {
    GUEST: ("INSTANCE", {HOST: {"VCPU": 2, "MEMORY_MB": 4096}, POOL: {"DISK_GB": 10}}),
    MOVING: ("MIGRATION", {HOST: {"VCPU": 1}, ELSEWHERE: {"VCPU": 1}}),
    OLD: (None, {HOST: {"VCPU": 1, "MEMORY_MB": 512}}),
    STRANGER: ("INSTANCE", {POOL: {"DISK_GB": 5}, ELSEWHERE: {"VCPU": 1}}),
}
"""Type and holdings by consumer; one without a type was written at an old microversion."""


class Road:
    """A host that placement has flat, with guests, and whose agent starts with NUMA cells."""

    def __init__(self, placement: Transport, directory: Path, *, whole_trees: bool) -> None:
        self._placement, self._directory, self._whole_trees = placement, directory, whole_trees
        (directory / "state").mkdir(parents=True)
        identity.write_compute_id(directory / "state", HOST)
        self.node = self._started(nested=False)
        assert self.node.run().completed
        self._claim()
        self.node.parts.close()
        self.node = self._started(nested=True)
        self.handed: dict[str, Any] = {}
        self.read: dict[str, Any] = {}

    def _started(self, *, nested: bool) -> Node:
        name = "the-host"
        node = Node(self._placement, self._directory, name=name, whole_trees=self._whole_trees)
        node.driver.machine = fake_topology(name, SIZE)
        node.driver.options = replace(node.driver.options, is_nested=nested)
        return node

    def send(self, method: str, path: str, body: Any = None, minor: int = 39) -> Any:
        answer = self._placement.send(Request(method, path, (1, minor), body))
        assert answer.status < 300, answer.text
        return json.loads(answer.content or b"null")

    def _claim(self) -> None:
        pool: Any = {"uuid": POOL, "aggregates": [POOLED]}
        make_provider(self.send, "pool", {"DISK_GB": 100}, ["MISC_SHARES_VIA_AGGREGATE"], **pool)
        make_provider(self.send, "elsewhere", {"VCPU": 100}, uuid=ELSEWHERE)
        path = f"/resource_providers/{HOST}/aggregates"
        self.send("PUT", path, {**self.send("GET", path), "aggregates": [POOLED]})
        for consumer, (kind, held) in HELD.items():
            body = claim_body(held, consumer_type=kind)
            if kind is None:
                del body["consumer_type"]
            self.send("PUT", f"/allocations/{consumer}", body, minor=39 if kind else 36)

    def allocations(self) -> dict[str, Any]:
        return {consumer: self.send("GET", f"/allocations/{consumer}") for consumer in HELD}

    def reshape(self) -> None:
        """Start the agent, and keep what its driver is handed, and what placement has then."""
        update = self.node.driver.update_provider_tree

        def watched(tree: Any, name: str, allocations: Any = None) -> None:
            if allocations is not None:
                self.handed, self.read = copy.deepcopy(allocations), self.allocations()
            update(tree, name, allocations)

        self.node.driver.update_provider_tree = watched
        assert self.node.run().completed


@pytest.fixture(scope="module")
def roads(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Road]]:
    """Every road there is here, each with a reshape done."""
    made = {}
    for name, (kind, whole_trees) in ROADS.items():
        directory = tmp_path_factory.mktemp("road")
        with suppress(pytest.skip.Exception), placement_of(kind, directory) as placement:
            made[name] = Road(placement, directory / "agent", whole_trees=whole_trees)
            made[name].reshape()
    yield made
    for road in made.values():
        road.node.parts.close()


@pytest.mark.parametrize("name", ROADS)
def test_a_driver_is_handed_what_placement_shows_of_each_consumer(
    roads: dict[str, Road], name: str
) -> None:
    if name not in roads:
        pytest.skip("the published package cannot be had here")
    road = roads[name]
    shown = {consumer: road.read[consumer] for consumer in (GUEST, MOVING, OLD)}
    assert road.handed == shown
    assert road.handed[GUEST]["allocations"].keys() == {HOST, POOL}


def test_it_is_the_same_on_every_road(roads: dict[str, Road]) -> None:
    first, *others = roads.values()
    for road in others:
        assert road.handed == first.handed
