"""Failures of placement and of drivers: what the real process says, and how it recovers."""

import uuid

import pytest

from tests.functional.agent.processes import PLAIN_API, PlacementProcess, eventually, running, vcpus

pytestmark = pytest.mark.waiting


def test_placement_down_at_start_and_later_is_waited_for_and_told_once(tmp_path, new_agent, node):
    (tmp_path / "placement").mkdir()
    placement = PlacementProcess(tmp_path / "placement")
    agent = new_agent(placement.url)
    agent.start()
    try:
        eventually(lambda: "cannot be reached" in agent.logged(), "a warning")
        status = eventually(agent.status, "an answer although placement is down")
        assert status["placement"]["up"] is False
        placement.start()
        agent.started()
        assert vcpus(placement, node) == 8
        placement.kill()
        eventually(lambda: agent.status()["placement"]["up"] is False, "the outage in the status")
        agent.script(nodes=[node], inventory={"VCPU": {"total": 10}})
        placement.start()
        eventually(lambda: vcpus(placement, node) == 10, "the change after the outage")
        eventually(lambda: agent.node()["trouble"] is None, "no trouble any more")
        warnings = [line for line in agent.logged().splitlines() if "WARNING" in line]
        assert 2 <= len(warnings) <= 3, "one for each outage, by node or by the search for nodes"
        assert "resolved: placement cannot be reached" in agent.logged()
        assert agent.stop() == 0
    finally:
        placement.kill()


def test_a_start_during_an_outage_is_still_a_start_when_placement_is_back(
    placement, proxy, new_agent, node
):
    agent = new_agent(proxy.url)
    agent.script(nodes=[node], vgpu_on_root=True)
    with running(agent):
        agent.stop()
    proxy.error(".*", ".*", 503)
    agent.script(nodes=[node], reshape="once")
    agent.start()
    eventually(lambda: "cannot be reached" in agent.logged(), "a warning")
    proxy.honest()
    agent.started()
    tree = placement.tree(node)
    assert tree[f"{node}_gpu"]["inventories"]["VGPU"]["total"] == 4
    assert "being migrated" in agent.logged()


@pytest.mark.parametrize(
    ("behaviour", "level", "words"),
    [
        # what else it may raise: test_every_row, without the process
        ({"raise": {"update_provider_tree": "ZeroDivisionError"}}, "ERROR", "Traceback"),
        ({"raise": {"update_provider_tree": "VirtDriverNotReady"}}, "WARNING", "not ready"),
        ({"missing_facts": ["vcpus"]}, "ERROR", "lack vcpus"),
    ],
)
def test_a_driver_that_fails_in_a_period_is_logged_once_and_recovered_from(
    placement, new_agent, node, behaviour, level, words
):
    with running(new_agent(placement.url)) as agent:
        agent.script(nodes=[node], inventory={"VCPU": {"total": 1}}, **behaviour)
        eventually(lambda: (agent.node()["trouble"] or {"seen": 0})["seen"] >= 3, "3 failures")
        said = [line for line in agent.logged().splitlines() if f" {level} " in line]
        assert len([line for line in said if f"Node {node}" in line]) == 1, said
        assert words in agent.logged()
        assert vcpus(placement, node) == 8, "nothing was flushed"
        agent.script(nodes=[node], inventory={"VCPU": {"total": 2}})
        eventually(lambda: vcpus(placement, node) == 2, "the recovery")
        assert agent.stop() == 0


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        ((400, ""), "400 was scripted"),
        ((401, ""), "does not let this agent in"),
        ((503, ""), "cannot be reached"),
    ],
)
def test_an_error_of_placement_in_a_period_is_logged_and_recovered_from(
    placement, proxy, new_agent, node, lie, words
):
    with running(new_agent(proxy.url, compute_agent=PLAIN_API)) as agent:
        status, code = lie
        proxy.error("PUT", "/inventories$", status, code)
        agent.script(nodes=[node], inventory={"VCPU": {"total": 5}})
        eventually(lambda: words in agent.logged(), f"{words} in the log")
        eventually(lambda: agent.node()["trouble"], "the trouble in the status")
        proxy.honest()
        eventually(lambda: vcpus(placement, node) == 5, "the recovery")
        assert agent.stop() == 0


def test_a_conflict_is_repeated_and_then_waited_out(placement, proxy, new_agent, node):
    with running(new_agent(proxy.url, compute_agent=PLAIN_API)) as agent:
        proxy.error("PUT", "/inventories$", 409, "placement.concurrent_update", times=1)
        # more than before, as less would be a warning of its own
        more = {"VCPU": {"total": 10}, "MEMORY_MB": {"total": 1024}}
        agent.script(nodes=[node], inventory=more)
        eventually(lambda: "total 8 to 10" in agent.logged(), "the change")
        assert vcpus(placement, node) == 10
        assert "ERROR" not in agent.logged()
        assert "WARNING" not in agent.logged()


def test_one_nodes_failure_leaves_the_others_alone(placement, new_agent, node):
    names = {f"{node}-{n}": str(uuid.uuid4()) for n in range(3)}
    driver = "tests.functional.agent.scripted_driver.ScriptedNodesDriver"
    agent = new_agent(placement.url, DEFAULT={"compute_driver": driver})
    agent.script(nodes=names)
    with running(agent):
        assert not (agent.state / "compute_id").exists()
        for name, identity in names.items():
            assert placement.root(name)["uuid"] == identity
        broken = {f"update_provider_tree {node}-1": "ZeroDivisionError"}
        agent.script(nodes=names, inventory={"VCPU": {"total": 3}}, **{"raise": broken})
        eventually(lambda: vcpus(placement, f"{node}-2") == 3, "the node after the broken one")
        eventually(lambda: vcpus(placement, f"{node}-0") == 3, "the node before it")
        assert vcpus(placement, f"{node}-1") == 8
        agent.script(nodes={f"{node}-0": names[f"{node}-0"]})
        eventually(lambda: len(agent.status()["nodes"]) == 1, "the others dropped")
        assert placement.root(f"{node}-2"), "their providers are left as they are"
        assert agent.stop() == 0
