"""Claims of the real process: over restarts, and when what was given out is gone."""

import json
import signal
import uuid

import pytest

from compute_agent import errors
from compute_agent.state.claim import AssignedUnit, Claim, ClaimedCell
from compute_agent.state.ledger import Ledger
from tests.functional.agent.processes import claim, running

pytestmark = pytest.mark.waiting

UNITS = {"PCPU": ["2", "3"]}
INVENTORY = {"VCPU": {"total": 2}, "PCPU": {"total": 2}}


@pytest.fixture
def agent_with_a_claim(placement, new_agent, node):
    """An agent that was stopped while an instance held CPU 2; and the instance."""
    agent = new_agent(placement.url, DEFAULT={"update_resources_interval": -1})
    agent.script(nodes=[node], inventory=INVENTORY, units=UNITS)
    with running(agent):
        root = placement.root(node)["uuid"]
        agent.stop()
    instance = claim(placement, root, {"PCPU": 1})
    Ledger(agent.state).change_claims(
        add=[
            Claim(
                consumer=instance,
                node=node,
                amounts={root: {"PCPU": 1}},
                instance=instance,
                claimed_at=1.0,
                units=(AssignedUnit(root, "PCPU", "2"),),
                cells=(ClaimedCell(1, pinned_cpus=(2,), memory_mib=64, page_size_kib=2048),),
            )
        ]
    )
    return agent, instance


def test_a_claim_outlives_the_agent_and_is_listed_with_and_without_it(agent_with_a_claim, node):
    agent, instance = agent_with_a_claim
    (listed,) = json.loads(agent.run("claims", "--json").stdout)["claims"]
    assert listed["units"][0]["name"] == "2"
    with running(agent):
        (told,) = json.loads(agent.run("claims", "--json").stdout)["claims"]
        assert told == listed
        shown = agent.run("claims").stdout
        assert instance in shown
        assert "NUMA cell 1: 64 MiB in pages of 2048 KiB" in shown


def test_a_start_without_what_an_instance_was_given_ends_with_4_until_its_claim_is_dropped(
    agent_with_a_claim, node
):
    agent, instance = agent_with_a_claim
    agent.script(nodes=[node], inventory=INVENTORY, units={"PCPU": ["3", "4"]})
    agent.start()
    assert agent.ended() == 4
    assert f"PCPU 2 of {instance}" in agent.logged()
    assert "Traceback" not in agent.logged()
    assert agent.run("drop-claim", instance).returncode == 0
    assert agent.run("drop-claim", instance).returncode == 1
    with running(agent):
        assert agent.ask("claims") == []


def test_a_claim_whose_instance_was_deleted_meanwhile_is_dropped_at_the_start(
    agent_with_a_claim, placement
):
    agent, instance = agent_with_a_claim
    assert placement.request("DELETE", f"/allocations/{instance}").ok
    with running(agent):
        assert agent.ask("claims") == []
        assert f"claim of {instance} is dropped" in agent.logged()


def test_a_killed_agent_keeps_its_claims(agent_with_a_claim):
    agent, instance = agent_with_a_claim
    with running(agent):
        agent.send(signal.SIGKILL)
        agent.process.wait()
    with running(agent):
        assert [claim["consumer"] for claim in agent.ask("claims")] == [instance]
        assert agent.run("drop-claim", instance).returncode == 0
        assert agent.ask("claims") == []


def test_during_an_upgrade_the_agent_allocates_on_its_root_what_the_flavor_says(
    placement, new_agent, node
):
    agent = new_agent(placement.url, compute_agent={"legacy_self_claim": "auto"})
    agent.script(nodes=[node], inventory={"VCPU": {"total": 4}, "MEMORY_MB": {"total": 1024}})
    first, second = str(uuid.uuid4()), str(uuid.uuid4())
    spec = {
        "instance_uuid": first,
        "project_id": "p",
        "user_id": "u",
        "flavor": {"vcpus": 3, "memory_mb": 512, "extra_specs": {"hw:cpu_policy": "shared"}},
    }
    with running(agent):
        root = placement.root(node)["uuid"]
        claimed = agent.ask("instance_claim", spec=spec)
        assert claimed["amounts"] == {root: {"VCPU": 3, "MEMORY_MB": 512}}
        record = placement.get(f"/allocations/{first}")
        assert record["allocations"][root]["resources"] == {"VCPU": 3, "MEMORY_MB": 512}
        assert (record["project_id"], record["consumer_type"]) == ("p", "INSTANCE")
        assert agent.ask("instance_claim", spec=spec) == claimed
        with pytest.raises(errors.ComputeAgentError, match="VCPU"):
            agent.ask("instance_claim", spec=spec | {"instance_uuid": second})
        assert placement.get(f"/allocations/{second}")["allocations"] == {}
        assert [claim["consumer"] for claim in agent.ask("claims")] == [first]


def test_what_is_no_claim_cannot_be_dropped(placement, new_agent):
    with running(new_agent(placement.url)) as agent:
        assert agent.run("drop-claim", str(uuid.uuid4())).returncode == 1
