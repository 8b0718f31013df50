"""Nodes that the driver lists no more: deleted, left, kept or handed over."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from compute_agent.agent.node_list import NODE_LIST
from compute_agent.placement.transports.in_process import InProcessTransport
from compute_agent.provider_tree.trait_names import OWNER_NOVA
from compute_agent.report.client import ReportClient
from compute_agent.tracker import removed_nodes
from tests.fixtures.agent_commands import commands_of
from tests.functional.agent.nodes_scene import NodesScene
from tests.functional.report.claims import claim

Nodes = dict[str, str]
PLAIN = "[compute_agent]\nuse_placement_extensions = never\n"
CHILDREN = {"card": {"CUSTOM_CARD": {"total": 1}}}


@pytest.fixture
def gone(nodes: Nodes) -> tuple[str, Nodes]:
    """The node that goes, and those that stay."""
    name = sorted(nodes)[0]
    return name, {other: nodes[other] for other in nodes if other != name}


@pytest.fixture
def other(app: Any) -> Iterator[ReportClient]:
    """Another writer."""
    client = ReportClient(InProcessTransport(app))
    yield client
    client.close()


def reported(scene: NodesScene, nodes: Nodes, **more: Any) -> NodesScene:
    scene.script(nodes, **more)
    scene.report(NODE_LIST)
    scene.run_due()
    return scene


def look(scene: NodesScene, nodes: Nodes, **more: Any) -> None:
    scene.script(nodes, **more)
    scene.report(NODE_LIST)


def names(scene: NodesScene, root: str) -> set[str]:
    tree = scene.parts.report.get_provider_tree(root, fresh=True)
    return {tree.data(uuid).name for uuid in tree.get_provider_uuids_in_tree(root)}


def test_a_node_that_is_gone_for_good_is_deleted_with_its_children_and_all_that_is_known_of_it(
    scene: NodesScene, nodes: Nodes, gone: tuple[str, Nodes]
) -> None:
    name, left = gone
    reported(scene, nodes, children=CHILDREN)
    assert names(scene, nodes[name]) == {name, f"{name}_card"}
    known_uuids = scene.parts.report.get_provider_tree(nodes[name]).get_provider_uuids()
    look(scene, left, children=CHILDREN, deleted=[name])
    assert not scene.exists(nodes[name])
    [(stays, uuid_of_other)] = left.items()
    assert names(scene, uuid_of_other) == {stays, f"{stays}_card"}
    assert list(scene.tracker.nodes()) == [stays]
    ledger = scene.parts.ledger
    assert ledger.nodes() == {uuid_of_other: stays}
    assert not any(map(ledger.owns, known_uuids))


def test_a_node_that_vanished_while_the_agent_was_down_is_deleted_at_its_next_start(
    new_scene: Callable[..., NodesScene], nodes: Nodes, gone: tuple[str, Nodes]
) -> None:
    name, left = gone
    reported(new_scene(), nodes)
    scene = reported(new_scene(), left, deleted=[name])
    assert not scene.exists(nodes[name])


def test_a_node_that_others_hold_something_of_stays_whole_until_it_is_given_back(
    scene: NodesScene,
    nodes: Nodes,
    gone: tuple[str, Nodes],
    other: ReportClient,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.INFO)
    name, left = gone
    reported(scene, nodes, children=CHILDREN)
    consumers = [claim(other, nodes[name], {"VCPU": 1}) for _ in range(6)]
    now, intervals, told = [1e6], [0.0], list[tuple[str, str, frozenset[str]]]()
    scene.departures.interval = lambda: intervals[0]
    scene.departures.on_holders = lambda *holders: told.append(holders)
    monkeypatch.setattr(removed_nodes, "time", SimpleNamespace(monotonic=lambda: now[0]))
    for interval, seconds, tellings in (0, 9, 0), (100, 9, 1), (100, 99, 1), (100, 1, 2):
        intervals[0], now[0] = interval, now[0] + seconds
        look(scene, left, children=CHILDREN, deleted=[name])
        assert told == [(name, nodes[name], frozenset(consumers))] * tellings
    assert names(scene, nodes[name]) == {name, f"{name}_card"}
    assert caplog.text.count("is gone; its providers stay") == 1
    assert (
        f"6 consumer(s) hold something of them: {', '.join(sorted(consumers)[:5])};" in caplog.text
    )
    for consumer in consumers:
        other.placement.allocations.delete_allocation(consumer)
    look(scene, left, deleted=[name])
    assert not scene.exists(nodes[name])
    assert caplog.text.count("providers stay") == 1
    reported(scene, nodes)
    for consumer in consumers:
        claim(other, nodes[name], {"VCPU": 1}, consumer)
    look(scene, left, deleted=[name])
    assert caplog.text.count("providers stay") == 2


@pytest.mark.parametrize("lost", ["the ledger", "the mark"])
def test_a_node_is_known_as_ours_by_the_ledger_and_by_its_mark(
    scene: NodesScene, nodes: Nodes, gone: tuple[str, Nodes], other: ReportClient, lost: str
) -> None:
    name, left = gone
    reported(scene, nodes)
    if lost == "the ledger":
        scene.parts.ledger.remember_providers(additions=(), removals=[nodes[name]])
    else:
        other.change_traits(nodes[name], remove=[OWNER_NOVA])
    look(scene, left, deleted=[name])
    assert not scene.exists(nodes[name])


def test_a_node_that_is_only_elsewhere_now_keeps_its_providers(
    new_scene: Callable[..., NodesScene],
    nodes: Nodes,
    gone: tuple[str, Nodes],
    other: ReportClient,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    name, left = gone
    scene = reported(new_scene("WanderingNodesDriver"), nodes)
    commands = commands_of(scene.parts, scene.tracker, claims=True)
    for known in nodes:
        held = claim(other, nodes[known], {"VCPU": 1})
        commands.instance_claim({"instance_uuid": held, "node": known})
    look(scene, left)
    assert [held.node for held in scene.parts.ledger.claims().values()] == list(left)
    assert f"Node {name} is no longer managed here; the providers of {nodes[name]}" in caplog.text
    assert scene.parts.report.known_tree(nodes[name]) is None
    # it is another agent's by now, whatever this driver says of it
    look(scene, left, deleted=[name])
    assert scene.exists(nodes[name])


def test_a_node_that_a_driver_without_others_lists_no_more_is_asked_about_until_it_is_gone(
    scene: NodesScene, nodes: Nodes, gone: tuple[str, Nodes], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    name, left = gone
    reported(scene, nodes)
    for _ in range(2):
        look(scene, left)
        assert scene.exists(nodes[name])
    assert caplog.text.count(f"Node {name} is no longer managed here") == 1
    look(scene, left, deleted=[name])
    assert not scene.exists(nodes[name])


@pytest.mark.parametrize(
    "change", ["inventory", "inventory, probed", "traits", "aggregates", "a child", "nothing"]
)
def test_a_wandering_node_that_another_agent_has_written_to_is_left_to_it(
    new_scene: Callable[..., NodesScene],
    nodes: Nodes,
    gone: tuple[str, Nodes],
    other: ReportClient,
    caplog: pytest.LogCaptureFixture,
    change: str,
) -> None:
    """A claim that was released meanwhile is no such write. A probe sees the generation alone."""
    caplog.set_level(logging.INFO)
    name, left = gone
    root = nodes[name]
    scene = reported(new_scene("WanderingNodesDriver", PLAIN), nodes)
    consumer = claim(other, root, {"VCPU": 1})
    other.placement.allocations.delete_allocation(consumer)
    generation = other.placement.providers.traits(root, name).generation
    if change.startswith("inventory"):
        other.placement.providers.put_inventories(root, name, generation, {"VCPU": {"total": 9}})
    elif change == "traits":
        other.placement.providers.put_traits(root, name, generation, frozenset({"HW_CPU_X86_AVX"}))
    elif change == "aggregates":
        other.placement.providers.put_aggregates(
            root, name, generation, frozenset({str(uuid.uuid4())})
        )
    elif change == "a child":
        other.placement.providers.create(str(uuid.uuid4()), f"{name}_ovs", root)
    if "probed" in change:
        scene.parts.report.get_provider_tree(root)
    look(scene, left, deleted=[name])
    assert scene.exists(root) == (change != "nothing")
    assert ("another agent has written to them" in caplog.text) == (change != "nothing")
    assert root not in scene.parts.ledger.nodes()


def test_a_wandering_node_of_which_nothing_was_seen_is_left_to_others(
    new_scene: Callable[..., NodesScene], nodes: Nodes, gone: tuple[str, Nodes]
) -> None:
    name, left = gone
    scene = reported(new_scene("WanderingNodesDriver"), nodes)
    scene.parts.report.drop_cache()
    look(scene, left, deleted=[name])
    assert scene.exists(nodes[name])
    assert nodes[name] not in scene.parts.ledger.nodes()


def test_a_child_of_others_keeps_the_tree(
    scene: NodesScene,
    nodes: Nodes,
    gone: tuple[str, Nodes],
    other: ReportClient,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    name, left = gone
    reported(scene, nodes)
    providers, child = other.placement.providers, str(uuid.uuid4())
    providers.create(child, f"{name}_ovs", nodes[name])
    look(scene, left, deleted=[name])
    assert f"{name}_ovs was made by another service" in caplog.text
    assert names(scene, nodes[name]) == {name, f"{name}_ovs"}
    providers.delete(child, f"{name}_ovs")
    look(scene, left, deleted=[name])
    assert not scene.exists(nodes[name])


def test_a_node_that_is_deleted_already_is_forgotten(
    scene: NodesScene, nodes: Nodes, gone: tuple[str, Nodes], other: ReportClient
) -> None:
    name, left = gone
    reported(scene, nodes)
    other.placement.providers.delete(nodes[name], name)
    look(scene, left, deleted=[name])
    assert nodes[name] not in scene.parts.ledger.nodes()


def test_what_is_allocated_while_a_node_is_deleted_keeps_it(
    scene: NodesScene,
    nodes: Nodes,
    gone: tuple[str, Nodes],
    other: ReportClient,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    name, left = gone
    reported(scene, nodes)
    consumers = list[str]()

    def claim_first(method: str, path: str) -> None:
        if method == "DELETE" and nodes[name] in path and not consumers:
            consumers.append(str(uuid.uuid4()))
            claim(other, nodes[name], {"VCPU": 1}, consumers[0])

    scene.transport.before = claim_first
    look(scene, left, deleted=[name])
    assert scene.exists(nodes[name])
    assert "its providers stay: something of it was allocated meanwhile" in caplog.text
    other.placement.allocations.delete_allocation(consumers[0])
    look(scene, left, deleted=[name])
    assert not scene.exists(nodes[name])


@pytest.mark.parametrize("error", ["ZeroDivisionError", "VirtDriverNotReady"])
def test_a_driver_that_cannot_tell_whether_a_node_is_gone_is_asked_again(
    scene: NodesScene,
    nodes: Nodes,
    gone: tuple[str, Nodes],
    caplog: pytest.LogCaptureFixture,
    error: str,
) -> None:
    name, left = gone
    reported(scene, nodes)
    look(scene, left, **{"raise": {"is_node_deleted": error}})
    [record] = [r for r in caplog.records if "providers are not removed yet" in r.getMessage()]
    assert bool(record.exc_info) == (error == "ZeroDivisionError"), "a defect is to be found"
    assert scene.exists(nodes[name])
    look(scene, left, deleted=[name])
    assert not scene.exists(nodes[name])
