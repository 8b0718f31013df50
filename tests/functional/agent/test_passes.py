"""Passes of the real process: what they send to placement, and what they leave alone."""

import uuid

import pytest

from tests.fixtures.plain_trees import make_provider
from tests.functional.agent.processes import claim, eventually, running, vcpus

pytestmark = pytest.mark.waiting


def test_a_quiet_pass_is_one_request_and_logs_nothing(placement, proxy, new_agent):
    with running(new_agent(proxy.url, DEFAULT={"update_resources_interval": -1})) as agent:
        logged = agent.logged()
        for _ in range(3):
            before = len(proxy.requests)
            node = agent.report()
            (request,) = proxy.requests[before:]
            assert request.startswith("GET /provider_trees/")
            assert node["last_pass"]["requests"] == 1
            assert node["last_pass"]["writes"] == 0
        assert agent.logged() == logged


def test_a_change_of_the_machine_is_reported_by_the_next_periodic_pass(placement, new_agent, node):
    with running(new_agent(placement.url)) as agent:
        memory = {"MEMORY_MB": {"total": 1024}}
        agent.script(nodes=[node], inventory={**memory, "VCPU": {"total": 12}})
        eventually(lambda: vcpus(placement, node) == 12, "the change in placement")
        # it is written first and said then
        eventually(lambda: "change(s) written" in agent.logged(), "how many were written")
        line = (
            f"INFO compute_agent.tracker.change_log [-] Node {node}: VCPU of {node}: total 8 to 12"
        )
        eventually(lambda: line in agent.logged(), "the change in words")
        agent.script(nodes=[node], inventory={**memory, "VCPU": {"total": 0}})
        eventually(lambda: agent.node()["losses"], "a loss in the status")
        (loss,) = (entry["text"] for entry in agent.node()["losses"])
        assert loss.startswith(f"VCPU of {node}: total 12")
        warning = f"WARNING compute_agent.tracker.change_log [-] Node {node}: {loss}"
        eventually(lambda: warning in agent.logged(), "a warning")
        assert loss in agent.run("status").stdout
        last = agent.run("history").stdout.splitlines()[-1]
        assert last.endswith(f"lost {loss}")
        agent.script(nodes=[node], inventory={**memory, "VCPU": {"total": 12}})
        eventually(lambda: not agent.node()["losses"], "no loss in the status")
        lines = agent.run("history").stdout.splitlines()
        agent.stop()
    with running(agent):
        assert agent.run("history").stdout.splitlines() == lines, "after a restart, too"
        agent.stop()
    (agent.state / "history.json").write_text("{")
    with running(agent):
        assert "The last changes before this start are not known" in agent.logged()
        assert agent.run("history").stdout == "Nothing was changed in placement.\n"


def test_a_reshape_needed_in_a_period_is_refused_and_waits_for_a_restart(
    placement, new_agent, node
):
    agent = new_agent(placement.url)
    agent.script(nodes=[node], vgpu_on_root=True)
    with running(agent):
        agent.script(nodes=[node], reshape="once")
        eventually(lambda: agent.node()["reshape_pending"], "the pending reshape")
        assert "Restart the agent" in agent.logged()
        assert "VGPU" in placement.tree(node)[node]["inventories"]
        assert f"{node}_gpu" not in placement.tree(node)
        assert agent.stop() == 0
    with running(agent):
        assert "VGPU" in placement.tree(node)[f"{node}_gpu"]["inventories"]
        assert not agent.node()["reshape_pending"]


def test_a_provider_the_driver_drops_is_deleted_and_a_foreign_child_is_kept(
    placement, new_agent, node
):
    agent = new_agent(placement.url, DEFAULT={"update_resources_interval": -1})
    agent.script(nodes=[node], children={"NUMA0": {"VCPU": {"total": 4}}})
    with running(agent):
        root = placement.root(node)["uuid"]
        make_provider(placement.send, f"{node}_x", parent=root)
        assert set(placement.tree(node)) == {node, f"{node}_NUMA0", f"{node}_x"}
        # the driver drops both, and one of them is not the agent's
        agent.script(nodes=[node])
        agent.report()
        assert set(placement.tree(node)) == {node, f"{node}_x"}
        agent.report()
        assert set(placement.tree(node)) == {node, f"{node}_x"}


def test_drift_between_instances_and_allocations_is_shown_and_nothing_is_touched(
    placement, new_agent, node
):
    agent = new_agent(placement.url, compute_agent={"audit_interval": 1, "audit_grace": 1})
    instance, stranger = str(uuid.uuid4()), str(uuid.uuid4())
    agent.script(nodes=[node], instances=[instance])
    with running(agent):
        claim(placement, placement.root(node)["uuid"], {"VCPU": 1}, stranger)
        wanted = {"orphaned": [stranger], "missing": [instance], "differing": []}
        eventually(lambda: agent.node()["drift"] == wanted, "the drift in the status")
        assert f"drift, orphaned: {stranger}" in agent.run("status").stdout
        assert placement.get(f"/allocations/{stranger}")["allocations"]
        agent.script(nodes=[node], instances=[stranger])
        none = {"orphaned": [], "missing": [], "differing": []}
        eventually(lambda: agent.node()["drift"] == none, "agreement")


def test_an_inventory_changed_by_hand_is_set_back_and_that_is_told_once(placement, new_agent, node):
    options = {
        "DEFAULT": {"update_resources_interval": -1},
        "compute": {"resource_provider_association_refresh": 1},
    }
    with running(new_agent(placement.url, **options)) as agent:
        before = vcpus(placement, node)
        root = placement.root(node)
        path = f"/resource_providers/{root['uuid']}/inventories/VCPU"
        body = {"total": 1, "resource_provider_generation": root["generation"]}
        assert placement.request("PUT", path, json=body).ok
        eventually(
            lambda: agent.report() and vcpus(placement, node) == before, "the host's inventory"
        )
        assert f"total 1 is {before} again" in agent.logged()
        agent.report()
        assert agent.logged().count("another client changed the inventory") == 1
