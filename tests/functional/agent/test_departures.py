"""Nodes that the driver lists no more: deleted, left, kept or handed over."""

import os
import time
import uuid

import pytest

from tests.fixtures.plain_trees import make_provider
from tests.functional.agent.processes import claim, eventually, running

pytestmark = pytest.mark.waiting

DRIVERS = "tests.functional.agent.scripted_driver"


@pytest.fixture
def nodes(node):
    return {f"{node}-{number}": str(uuid.uuid4()) for number in range(2)}


@pytest.fixture
def gone(nodes):
    """The node that goes, and those that stay."""
    name = sorted(nodes)[0]
    return name, {other: nodes[other] for other in nodes if other != name}


def make(new_agent, placement, driver="ScriptedNodesDriver"):
    return new_agent(placement.url, DEFAULT={"compute_driver": f"{DRIVERS}.{driver}"})


def stopped(new_agent, placement, nodes, *driver):
    """An agent that has reported some nodes and is down."""
    agent = make(new_agent, placement, *driver)
    agent.script(nodes=nodes)
    with running(agent):
        agent.stop()
    return agent


CHILDREN = {"card": {"CUSTOM_CARD": {"total": 1}}}


@pytest.fixture(autouse=True)
def _classes(placement):
    assert placement.request("PUT", "/resource_classes/CUSTOM_CARD").ok


def test_a_node_that_is_gone_for_good_is_deleted_with_its_children(
    placement, new_agent, nodes, gone
):
    agent = make(new_agent, placement)
    agent.script(nodes=nodes, children=CHILDREN)
    name, left = gone
    with running(agent):
        assert set(placement.tree(name)) == {name, f"{name}_card"}
        agent.script(nodes=left, children=CHILDREN, deleted=[name])
        eventually(lambda: placement.root(name) is None, "its providers deleted")
        assert set(placement.tree(*left)) == {*left, f"{next(iter(left))}_card"}
        assert [node["name"] for node in agent.status()["nodes"]] == list(left)


def test_a_node_that_vanished_while_the_agent_was_down_is_deleted_at_its_next_start(
    placement, new_agent, nodes, gone
):
    agent = stopped(new_agent, placement, nodes)
    name, left = gone
    agent.script(nodes=left, deleted=[name])
    with running(agent):
        eventually(lambda: placement.root(name) is None, "its providers deleted")


def test_a_node_that_somebody_holds_something_of_stays_whole_until_it_is_given_back(
    placement, new_agent, nodes, gone
):
    agent = make(new_agent, placement)
    agent.script(nodes=nodes, children=CHILDREN)
    name, left = gone
    with running(agent):
        consumer = claim(placement, nodes[name], {"VCPU": 1})
        agent.script(nodes=left, children=CHILDREN, deleted=[name])
        eventually(lambda: consumer in agent.logged(), "the holder named")
        assert set(placement.tree(name)) == {name, f"{name}_card"}
        assert placement.request("DELETE", f"/allocations/{consumer}").ok
        eventually(lambda: placement.root(name) is None, "its providers deleted")
        assert agent.logged().count("is gone; its providers stay") == 1


def test_what_an_instance_that_is_gone_too_holds_of_a_node_is_healed_and_the_node_deleted(
    placement, new_agent, nodes, gone, tmp_path
):
    instances = tmp_path / "instances"
    agent = make(new_agent, placement)
    agent.configure(
        compute_agent={
            "audit_interval": 1,
            "audit_grace": 0,
            "instance_source": "file",
            "instance_file": instances,
            "heal_orphans": True,
        }
    )
    agent.script(nodes=nodes)
    name, left = gone
    with running(agent):
        alive, dead = (claim(placement, nodes[name], {"VCPU": 1}) for _ in range(2))
        instances.write_text(f"{alive}\n")
        ahead = time.time() + 60  # who is older than the file is judged by it
        os.utime(instances, (ahead, ahead))
        agent.script(nodes=left, deleted=[name])
        eventually(lambda: not placement.held(dead), "what the dead instance held")
        assert placement.held(alive)
        assert placement.root(name)
        instances.write_text("")
        os.utime(instances, (ahead, ahead))
        eventually(lambda: placement.root(name) is None, "its providers deleted")


def test_a_node_that_is_only_elsewhere_now_keeps_its_providers(placement, new_agent, nodes, gone):
    agent = make(new_agent, placement, "WanderingNodesDriver")
    agent.script(nodes=nodes)
    name, left = gone
    with running(agent):
        for known in nodes:
            held = claim(placement, nodes[known], {"VCPU": 1})
            agent.ask("instance_claim", spec={"instance_uuid": held, "node": known})
        agent.script(nodes=left)
        eventually(lambda: len(agent.status()["nodes"]) == 1, "the node dropped")
        eventually(lambda: [c["node"] for c in agent.ask("claims")] == list(left), "its claim too")
        eventually(lambda: f"{name} is no longer managed here" in agent.logged(), "a line")
        # it is another agent's by now, whatever this driver says of it
        agent.script(nodes=left | {f"{name}-new": str(uuid.uuid4())}, deleted=[name])
        eventually(lambda: len(agent.status()["nodes"]) == 2, "a search")
        agent.script(nodes=left, deleted=[name])
        eventually(lambda: len(agent.status()["nodes"]) == 1, "another one")
        assert placement.root(name)["uuid"] == nodes[name]


def test_a_wandering_node_that_another_agent_has_written_to_is_left_to_it(
    placement, new_agent, nodes, gone
):
    agent = stopped(new_agent, placement, nodes, "WanderingNodesDriver")
    name, left = gone
    # another agent takes it over and reports more
    path = f"/resource_providers/{nodes[name]}/inventories"
    held = placement.get(path)
    held["inventories"]["VCPU"]["total"] = 9
    assert placement.request("PUT", path, json=held).ok
    agent.script(nodes=left, deleted=[name])
    with running(agent):
        eventually(lambda: "another agent has written to them" in agent.logged(), "a line")
        assert placement.root(name)["uuid"] == nodes[name]


def test_a_wandering_node_that_was_only_claimed_and_released_meanwhile_is_deleted(
    placement, new_agent, nodes, gone
):
    agent = stopped(new_agent, placement, nodes, "WanderingNodesDriver")
    name, left = gone
    consumer = claim(placement, nodes[name], {"VCPU": 1})
    assert placement.request("DELETE", f"/allocations/{consumer}").ok
    agent.script(nodes=left, deleted=[name])
    with running(agent):
        eventually(lambda: placement.root(name) is None, "its providers deleted")


def test_a_child_of_somebody_else_keeps_the_tree(placement, new_agent, nodes, gone):
    agent = make(new_agent, placement)
    agent.script(nodes=nodes)
    name, left = gone
    with running(agent):
        make_provider(placement.send, f"{name}_ovs", parent=nodes[name])
        agent.script(nodes=left, deleted=[name])
        eventually(lambda: "was made by another service" in agent.logged(), "a line")
        assert set(placement.tree(name)) == {name, f"{name}_ovs"}


def test_a_driver_that_cannot_say_whether_a_node_is_gone_is_asked_again(
    placement, new_agent, nodes, gone
):
    agent = make(new_agent, placement)
    agent.script(nodes=nodes)
    name, left = gone
    with running(agent):
        agent.script(nodes=left, **{"raise": {"is_node_deleted": "ZeroDivisionError"}})
        eventually(lambda: "providers are not removed yet" in agent.logged(), "a warning")
        assert placement.root(name)
        agent.script(nodes=left, deleted=[name])
        eventually(lambda: placement.root(name) is None, "its providers deleted")
