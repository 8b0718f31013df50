"""compute_agent.testing, as functional tests of other projects use it."""

import uuid

import pytest

from compute_agent.scheduler.python_api import NoValidHost, read_spec
from compute_agent.testing import AgentFixture, SchedulerFixture
from placement_server.testing import PlacementFixture

SMALL = {"fake": {"cells": 1, "gpus": 1, "nics": 0, "vgpus_per_gpu": 1}}


@pytest.fixture
def placement():
    with PlacementFixture() as fixture:
        yield fixture


def spec(**extra_specs):
    flavor = {"vcpus": 1, "memory_mb": 512, "root_gb": 0}
    extra = {name.replace("_", ":", 1): value for name, value in extra_specs.items()}
    document = {"project_id": "p", "user_id": "u", "flavor": {**flavor, "extra_specs": extra}}
    return read_spec(document)


def test_an_instance_lands_on_a_host_that_an_agent_reported(placement):
    with (
        AgentFixture(placement.endpoint, "one", options=SMALL) as agent,
        SchedulerFixture(placement.endpoint) as scheduler,
    ):
        assert agent.report().completed
        claim = scheduler.life_cycle.claim(spec(resources_VGPU="1"), str(uuid.uuid4()))
        assert claim.host == "one"
        assert agent.transport.writes
        with pytest.raises(NoValidHost):
            scheduler.life_cycle.claim(spec(resources_VGPU="1"), str(uuid.uuid4()))


def test_a_pass_that_placement_refuses_is_repeated(placement):
    with AgentFixture(placement.endpoint, "one", options=SMALL) as agent:
        placement.faults.refuse("GET", "/resource_providers", times=-1)
        placement.faults.refuse("GET", "/provider_trees", times=-1)
        assert not agent.report().completed
        assert placement.faults.failed_requests
        placement.faults.heal()
        assert agent.report().completed
        agent.restart()
        agent.transport.clear()
        assert agent.report().completed
        assert agent.transport.writes == []


def test_hosts_of_two_agents_are_two(placement):
    with (
        AgentFixture(placement.endpoint, "one", "fake.SmallFakeDriver") as one,
        AgentFixture(placement.endpoint, "two", "fake.SmallFakeDriver") as two,
        SchedulerFixture(placement.endpoint) as scheduler,
    ):
        assert one.report().completed
        assert two.report().completed
        assert one.node_uuid != two.node_uuid
        first = scheduler.life_cycle.claim(spec(), str(uuid.uuid4()), alternates=True)
        [alternate] = first.alternates
        assert {first.host, alternate.service_host} == {"one", "two"}
