"""Changes of others in placement are seen at once by a real agent that follows them."""

import time

import pytest

from tests.functional.agent.processes import eventually, running, running_placement, vcpus

pytestmark = pytest.mark.waiting

FOLLOWING = {
    "DEFAULT": {"update_resources_interval": -1},
    "compute_agent": {"follow_changes": True},
}
SOON = 20.0
"""Seconds: more than a stop takes, and less than a question for changes waits (50)."""


@pytest.fixture
def own_placement(tmp_path):
    with running_placement(tmp_path / "placement") as placement:
        yield placement


def change_by_hand(placement, node):
    root = placement.root(node)
    body = {"total": 3, "resource_provider_generation": root["generation"]}
    answer = placement.request(
        "PUT", f"/resource_providers/{root['uuid']}/inventories/VCPU", json=body
    )
    assert answer.status_code == 200, answer.text


def state_of(agent):
    status = agent.status()
    return status and status["changes"]["state"]


def is_set_back(placement, node):
    """An agent without a period sets a foreign change back: it has seen it."""
    change_by_hand(placement, node)
    eventually(lambda: vcpus(placement, node) == 8, "the inventory set back")


def test_a_foreign_change_makes_a_pass_without_a_period(placement, new_agent, node):
    with running(new_agent(placement.url, **FOLLOWING)) as agent:
        eventually(lambda: state_of(agent) == "following", "a first answer")
        is_set_back(placement, node)
        is_set_back(placement, node)
        # the pass that follows the first answer may have set the first one back before it was heard
        eventually(lambda: agent.status()["changes"]["changes"] >= 2, "both changes heard")
        assert "following since" in agent.run("status").stdout
        begun = time.monotonic()
        assert agent.stop() == 0
        assert time.monotonic() - begun < SOON, "it does not wait for the question to end"
        assert "Traceback" not in agent.logged()


def test_it_goes_on_after_an_outage_and_misses_nothing(own_placement, new_agent, node):
    with running(new_agent(own_placement.url, **FOLLOWING)) as agent:
        eventually(lambda: state_of(agent) == "following", "a first answer")
        own_placement.kill()
        eventually(lambda: state_of(agent) == "failing", "the outage in the status")
        own_placement.start()
        change_by_hand(own_placement, node)
        # after a long outage it asks after a long pause
        eventually(lambda: vcpus(own_placement, node) == 8, "the change during the outage")
        # the pass may have been a periodic retry; the question for changes has a pace of its own
        eventually(lambda: state_of(agent) == "following", "the end of the outage")
        assert agent.stop() == 0


def test_a_placement_without_the_feed_is_said_once(placement, proxy, new_agent, node):
    proxy.error("GET", "/changes.*", 404)
    with running(new_agent(proxy.url, **FOLLOWING)) as agent:
        eventually(lambda: state_of(agent) == "not offered", "the answer in the status")
        assert agent.logged().count("does not offer placement-ext 1.1") == 1
        assert vcpus(placement, node) == 8
        assert agent.stop() == 0


def test_extensions_that_may_not_be_used_contradict_it(placement, new_agent):
    agent = new_agent(
        placement.url,
        compute_agent={"follow_changes": True, "use_placement_extensions": "never"},
    )
    done = agent.run("run")
    assert done.returncode == 1
    assert "follow_changes" in agent.logged() + done.stderr
