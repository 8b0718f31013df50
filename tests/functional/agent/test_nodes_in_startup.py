"""Of many nodes, one that never gets through its first pass keeps none of the others waiting."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from compute_agent import errors
from tests.functional.agent.processes import (
    AgentProcess,
    PlacementProcess,
    claim,
    eventually,
    vcpus,
)

pytestmark = pytest.mark.waiting

SERVING = "Serving topic compute-agent on the message bus"


@pytest.fixture
def agent(placement: PlacementProcess, new_agent: Callable[..., AgentProcess]) -> AgentProcess:
    return new_agent(
        placement.url,
        DEFAULT={
            "compute_driver": "tests.functional.agent.scripted_driver.ScriptedNodesDriver",
            # nobody else is on it: only that it is served at all is looked at
            "transport_url": "kombu+memory:///startup",
        },
    )


@pytest.fixture
def nodes(node: str) -> dict[str, str]:
    """The first is the one that is not ready, as the nodes are gone through in their order."""
    return {f"{node}-{n}": str(uuid.uuid4()) for n in range(2)}


def not_ready(*names: str) -> dict[str, Any]:
    return {"raise": {f"update_provider_tree {name}": "VirtDriverNotReady" for name in names}}


def seen(agent: AgentProcess, name: str) -> int:
    """How often the trouble of a node was met."""
    status = eventually(agent.status, "an answer")
    found = [node for node in status["nodes"] if node["name"] == name]
    trouble = found[0]["trouble"] if found else None
    return int(trouble["seen"]) if trouble else 0


def test_the_bus_is_served_as_soon_as_one_node_is_reported(
    placement: PlacementProcess, agent: AgentProcess, nodes: dict[str, str]
) -> None:
    waiting, ready = nodes
    agent.script(nodes=nodes, **not_ready(waiting, ready))
    agent.start()
    eventually(lambda: seen(agent, ready) >= 2, "passes of nodes that are not ready")
    assert SERVING not in agent.logged(), "nothing can be asked of an agent without a node"
    agent.script(nodes=nodes, **not_ready(waiting))
    eventually(lambda: SERVING in agent.logged(), "the bus")
    assert vcpus(placement, ready) == 8
    assert vcpus(placement, waiting) is None
    assert agent.stop() == 0
    assert agent.logged().count(SERVING) == 1


def test_orders_find_their_node_beside_one_that_waits_and_are_told_of_it(
    placement: PlacementProcess, agent: AgentProcess, nodes: dict[str, str]
) -> None:
    waiting, ready = nodes
    agent.script(nodes=nodes, **not_ready(waiting))
    agent.start()
    eventually(lambda: vcpus(placement, ready) == 8, "the node that is ready")
    eventually(lambda: SERVING in agent.logged(), "the end of its first pass")
    instance = claim(placement, nodes[ready], {"VCPU": 1})
    wanted = {nodes[ready]: {"resources": {"VCPU": 1}}}
    given = agent.ask("instance_claim", spec={"instance_uuid": instance}, allocations=wanted)
    assert given["node"] == ready
    assert agent.ask("clear_fault", provider=nodes[ready]) is False

    spec = {"instance_uuid": instance, "node": waiting}
    with pytest.raises(errors.ComputeAgentError, match=f"{waiting}.*first pass"):
        agent.ask("instance_claim", spec=spec, allocations=wanted)
    unknown = str(uuid.uuid4())
    for order, arguments in {
        "clear_fault": {"provider": unknown},
        "instance_claim": {
            "spec": {"instance_uuid": instance},
            "allocations": {unknown: {"resources": {"VCPU": 1}}},
        },
    }.items():
        with pytest.raises(errors.ComputeAgentError, match=f"{waiting}.*first pass") as told:
            agent.ask(order, **arguments)
        assert unknown in str(told.value)
    assert agent.stop() == 0


def test_a_start_that_finds_no_node_says_why_until_it_finds_one(
    placement: PlacementProcess, agent: AgentProcess, nodes: dict[str, str]
) -> None:
    agent.script(**{"raise": {"get_available_nodes": "VirtDriverNotReady"}})
    agent.start()
    status = eventually(lambda: (agent.status() or {}).get("trouble") and agent.status(), "why")
    assert status["nodes"] == []
    assert (status["trouble"]["what"], status["bus"]["state"]) == (
        "the driver is not ready",
        "waiting",
    )
    asked = agent.run("report")
    assert asked.returncode == 4
    assert "nodes      not known yet\n  trouble since 20" in asked.stdout
    assert "the script says so for get_available_nodes. It is asked again" in asked.stdout
    agent.script(nodes=nodes)
    asked = agent.run("report")
    assert asked.returncode == 0, asked.stdout
    assert "trouble" not in asked.stdout
    assert all(vcpus(placement, node) == 8 for node in nodes)


def test_nodes_are_searched_for_after_a_change_that_is_reported_during_the_start(
    placement: PlacementProcess, agent: AgentProcess, nodes: dict[str, str]
) -> None:
    there, new = nodes
    agent.script(nodes={there: nodes[there]}, changes=True)
    agent.start()
    eventually(lambda: vcpus(placement, there) == 8, "the node that is there from the start")
    agent.script(nodes=nodes)
    eventually(lambda: vcpus(placement, new) == 8, "the node that came later")
    assert agent.stop() == 0


@pytest.mark.parametrize(
    ("raised", "exit_status"), [("VirtDriverNotReady", 4), ("PlacementUnavailable", 3)]
)
def test_a_report_of_a_node_that_stays_in_its_first_pass_fails(
    agent: AgentProcess, nodes: dict[str, str], raised: str, exit_status: int
) -> None:
    waiting, ready = nodes
    agent.script(nodes=nodes, **{"raise": {f"update_provider_tree {waiting}": raised}})
    agent.start()
    eventually(lambda: seen(agent, waiting) >= 1, "its trouble")
    assert agent.run("report", "--node", waiting).returncode == exit_status
    assert agent.run("report", "--node", waiting, "--no-wait").returncode == 0
    assert agent.run("report", "--node", ready).returncode == 0
