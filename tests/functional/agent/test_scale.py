"""Many nodes in one agent, and many agents on one placement."""

from __future__ import annotations

import json
import random
import re
import threading
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from compute_agent import conf as agent_conf
from compute_agent.agent import assembly, node_list
from compute_agent.agent.agent import Agent
from compute_agent.placement.connection import Clock
from compute_agent.placement.transports.transport import Request, Response
from compute_agent.provider_tree import ProviderTree
from compute_agent.report.cache import CacheFile, TreeCache
from compute_agent.tracker.pass_schedule import PassSchedule
from compute_agent.tracker.resource_tracker import ResourceTracker

_OF_ONE = re.compile(r"/resource_providers/([^/]+)/(inventories|traits|aggregates)")


class SmallPlacement:
    """The few calls that single providers need, in memory, for very many nodes."""

    def __init__(self) -> None:
        self.providers: dict[str, dict[str, Any]] = {}
        self.content: dict[tuple[str, str], Any] = {}
        self.calls: Counter[str] = Counter()
        self._lock = threading.Lock()

    def send(self, request: Request) -> Response:
        with self._lock:
            self.calls[request.method] += 1
            status, document = self._answer(request.method, request.path, request.json)
        text = "" if document is None else json.dumps(document)
        return Response(status, {}, text.encode())

    def _answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        parts = urlsplit(path)
        if path == "/":
            version = {"min_version": "1.0", "max_version": "1.39", "id": "v1.0"}
            return 200, {"versions": [version]}
        if parts.path == "/resource_providers":
            return self._listed(parts.query) if method == "GET" else self._created(body)
        if parts.path == "/traits":
            names = parse_qs(parts.query)["name"][0].removeprefix("in:").split(",")
            return 200, {"traits": names}
        if found := _OF_ONE.fullmatch(parts.path):
            return self._of_one(method, found[1], found[2], body)
        return 204, None  # a trait, a resource class

    def _listed(self, query: str) -> tuple[int, Any]:
        root = parse_qs(query).get("in_tree", [""])[0]
        found = [self.providers[root]] if root in self.providers else []
        return 200, {"resource_providers": found}

    def _created(self, body: Any) -> tuple[int, Any]:
        provider = {**body, "generation": 0, "parent_provider_uuid": None}
        self.providers[body["uuid"]] = provider
        return 200, provider

    def _of_one(self, method: str, uuid: str, aspect: str, body: Any) -> tuple[int, Any]:
        provider = self.providers[uuid]
        if method == "PUT":
            provider["generation"] += 1
            self.content[uuid, aspect] = body[aspect]
        held = self.content.get((uuid, aspect), {} if aspect == "inventories" else [])
        return 200, {"resource_provider_generation": provider["generation"], aspect: held}


pytestmark = pytest.mark.waiting

NODES = 4000
AGENTS = 1000
PERIOD = 60.0


def parts_of(directory: Path, placement: SmallPlacement, **fake: int) -> assembly.AgentParts:
    directory.mkdir(exist_ok=True)
    path = directory / "agent.conf"
    options = "".join(f"{name} = {value}\n" for name, value in fake.items())
    path.write_text(
        f"[DEFAULT]\nhost = {uuid.uuid4()}\nstate_path = {directory}/state\n"
        f"compute_driver = fake.FakeManyNodesDriver\n[fake]\n{options}"
        f"[compute]\nprovider_config_location = {directory}/none\n"
    )
    conf = agent_conf.new_config([f"--config-file={path}"], default_config_dirs=[])
    return assembly.build(conf, transport=placement)


def tracker_of(parts: assembly.AgentParts) -> ResourceTracker:
    return parts.tracker(wait=lambda _seconds: False)


def one_round(tracker: ResourceTracker) -> None:
    for name in tracker.nodes():
        assert tracker.run_pass(name).completed


def reported_already(directory: Path, placement: SmallPlacement, nodes: int) -> None:
    """Let placement have so many nodes, and the state directory what is known of them."""
    parts = parts_of(directory, placement, nodes=1)
    tracker = tracker_of(parts)
    ((name, node_uuid),) = parts.setup.nodes().items()
    tracker.add_node(name, node_uuid)
    one_round(tracker)
    known = parts.report.known_tree(node_uuid)
    parts.close()
    assert known is not None
    pattern = known.data(node_uuid)
    trees = {}
    for name in (str(uuid.uuid5(uuid.NAMESPACE_OID, str(number))) for number in range(nodes)):
        tree = ProviderTree()
        tree.new_root(name, name, pattern.generation)
        tree.update_inventory(name, pattern.inventory)
        tree.update_traits(name, pattern.traits)
        trees[name] = tree
        placement.providers[name] = {
            **placement.providers[node_uuid],
            "uuid": name,
            "name": name,
        }
    file = CacheFile(directory / "state" / assembly.CACHE, Clock())
    file.save([TreeCache(name, tree) for name, tree in trees.items()], now=True)


def test_a_period_is_enough_for_a_quiet_pass_of_each_of_4000_nodes(tmp_path):
    placement = SmallPlacement()
    reported_already(tmp_path, placement, NODES)
    parts = parts_of(tmp_path, placement, nodes=NODES)
    tracker = tracker_of(parts)
    schedule = PassSchedule(time.monotonic)
    nodes = node_list.NodeList(parts, tracker, schedule, parts.departures(), random.Random(1))
    assert nodes.find().completed
    assert len(schedule.take_due()) == NODES + 1
    placement.calls.clear()
    # CPU of this process alone, as the machine has other things to do meanwhile
    began = time.process_time()
    one_round(tracker)
    assert time.process_time() - began < PERIOD
    assert placement.calls == {"GET": NODES + 1}, "one each, and once for the versions"
    parts.close()


def test_agents_that_are_left_alone_ask_placement_once_each_in_a_period(tmp_path):
    placement = SmallPlacement()
    agents = []
    for number in range(20):
        parts = parts_of(tmp_path / str(number), placement, nodes=0)
        parts.driver.set_nodes([str(uuid.uuid4())])  # type: ignore[attr-defined]
        tracker = tracker_of(parts)
        for name, node_uuid in parts.setup.nodes().items():
            tracker.add_node(name, node_uuid)
        one_round(tracker)
        agents.append((parts, tracker))
    placement.calls.clear()
    for _parts, tracker in agents:
        one_round(tracker)
    assert placement.calls == {"GET": len(agents)}
    for parts, _tracker in agents:
        parts.close()


def test_a_fleet_that_is_restarted_at_once_comes_over_the_fuzzy_delay(tmp_path):
    parts = parts_of(tmp_path, SmallPlacement(), nodes=0)
    assert parts.conf.periodic_fuzzy_delay == 60
    drawn: list[float] = []
    for number in range(AGENTS):
        agent: Any = Agent(parts.conf, parts, rng=random.Random(number))
        agent._schedule_start()
        drawn.append(agent._schedule.seconds_to_next())
    per_second = Counter(map(int, drawn))
    assert max(drawn) < 60
    assert max(per_second.values()) < 3 * AGENTS / 60
    parts.close()
