"""The real process disables its host by itself, and enables only what it disabled."""

import json

import pytest

from tests.functional.agent.processes import claim, eventually, running

pytestmark = pytest.mark.waiting

DISABLED = "COMPUTE_STATUS_DISABLED"
AWAY = {"update_provider_tree": "HypervisorUnavailable"}


def is_disabled(placement, node) -> bool:
    return DISABLED in placement.tree(node)[node]["traits"]


def test_a_lost_hypervisor_disables_the_host_and_its_return_enables_it_over_a_restart(
    placement, new_agent, node
):
    agent = new_agent(placement.url)
    with running(agent):
        assert not is_disabled(placement, node)
        agent.script(nodes=[node], **{"raise": AWAY})
        eventually(lambda: is_disabled(placement, node), "the trait, although no pass completes")
        shown = agent.node()
        assert shown["enabled"] is False
        assert shown["disabled_reason"].startswith("AUTO: the hypervisor cannot be asked")
        assert "AUTO: " in agent.run("status").stdout
        assert agent.stop() == 0
    agent.script(nodes=[node])
    with running(agent):
        eventually(lambda: not is_disabled(placement, node), "the trait taken off again")
        assert agent.node()["enabled"] is True


def test_what_an_operator_disabled_stays_disabled_when_the_hypervisor_comes_back(
    placement, new_agent, node
):
    agent = new_agent(placement.url)
    with running(agent):
        agent.ask("set_host_enabled", enabled=False, reason="fan")
        assert is_disabled(placement, node)
        agent.script(nodes=[node], **{"raise": AWAY})
        eventually(lambda: agent.node()["trouble"], "the lost hypervisor")
        agent.script(nodes=[node])
        eventually(lambda: agent.node()["trouble"] is None, "its return")
        assert agent.node()["disabled_reason"] == "fan"
        assert is_disabled(placement, node)


def test_failed_builds_disable_the_host_until_one_runs(placement, new_agent, node):
    agent = new_agent(placement.url, compute={"consecutive_build_service_disable_threshold": 2})
    with running(agent):
        root = placement.root(node)["uuid"]
        for image in ("a", "b"):
            instance = claim(placement, root, {"VCPU": 1})
            agent.ask("instance_claim", spec={"instance_uuid": instance})
            agent.ask("drop_claim", instance=instance, error="no disk", image=image)
        assert agent.node()["disabled_reason"].startswith("AUTO: builds fail: 2 in a row")
        assert is_disabled(placement, node)
        runs = claim(placement, root, {"VCPU": 1})
        given = agent.ask("instance_claim", spec={"instance_uuid": runs})
        assert given["amounts"] == {root: {"VCPU": 1}}
        agent.script(nodes=[node], instances=[runs])
        eventually(lambda: not is_disabled(placement, node), "the host enabled by a success")


def test_the_host_can_be_switched_without_a_bus(placement, new_agent, node):
    agent = new_agent(placement.url)
    with running(agent):
        off = agent.run("disable", "--reason", "fan")
        assert off.returncode == 0, off.stderr
        assert is_disabled(placement, node)
        status = json.loads(agent.run("status", "--json").stdout)
        assert status["nodes"][0]["disabled_reason"] == "fan"
        assert agent.run("enable").returncode == 0
        assert not is_disabled(placement, node)
