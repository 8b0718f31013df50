"""The real agent with the host driver, which cannot tell its guests: what drift says then."""

import json

import pytest

from tests.fixtures.plain_trees import make_provider
from tests.functional.agent.processes import claim, eventually, running

pytestmark = pytest.mark.waiting


@pytest.fixture
def agent(placement, new_agent, node, tmp_path):
    """An agent that audits all the time."""
    return new_agent(
        placement.url,
        DEFAULT={"compute_driver": "host.HostDriver", "host": node, "instances_path": tmp_path},
        compute_agent={"audit_interval": 1, "audit_grace": 0},
    )


def audited(agent):
    """The drift that an audit from now on finds."""
    agent.report()
    eventually(lambda: "missing" in agent.report()["drift"], "an audit")
    return agent.report()["drift"]


def test_no_orphan_is_named_and_status_says_why(agent, placement, node):
    with running(agent):
        claim(placement, placement.root(node)["uuid"], {"VCPU": 1})
        assert "orphaned" not in audited(agent)
        why = "HostDriver cannot list the guests"
        assert why in agent.node()["orphans_unknown"]
        assert f"drift, orphaned: unknown: the driver {why}" in agent.run("status").stdout
        assert agent.logged().count(why) == 1
        assert "does not run here" not in agent.logged()


def test_a_guest_that_was_claimed_and_holds_nothing_is_told_and_keeps_its_claim(
    agent, placement, node
):
    with running(agent):
        root = placement.root(node)["uuid"]
        kept, lost, left = (claim(placement, root, {"VCPU": 1}) for _ in range(3))
        for consumer in (kept, lost, left):
            agent.ask("instance_claim", spec={"instance_uuid": consumer})
        other = make_provider(placement.send, f"{node}-other", {"VCPU": 8})
        for uuid in (lost, left):
            assert placement.request("DELETE", f"/allocations/{uuid}").ok
        claim(placement, other, {"VCPU": 1}, left)
        eventually(lambda: agent.report()["drift"].get("missing") == [lost], "it is told")
        eventually(lambda: f"claim of {left} is dropped" in agent.logged(), "it moved away")
        assert f"`compute-agent drop-claim {lost}`" in agent.logged()
        assert "differing" in agent.node()["drift"]
    with running(agent):
        listed = json.loads(agent.run("claims", "--json").stdout)["claims"]
        assert {entry["consumer"] for entry in listed} == {kept, lost}
