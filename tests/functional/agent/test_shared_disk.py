"""Two real agents on one pool: the provider's total follows the pool, written once for both."""

import uuid

import pytest

from tests.fixtures.allocations import new_uuid
from tests.fixtures.plain_trees import make_provider
from tests.functional.agent.processes import claim, eventually, running

pytestmark = pytest.mark.waiting

SHARED = "MISC_SHARES_VIA_AGGREGATE"


@pytest.fixture
def pool(placement):
    """A sharing provider as an operator makes it; returns its uuid and its aggregate."""
    aggregate = new_uuid()
    disk = {"DISK_GB": {"total": 100, "reserved": 10, "allocation_ratio": 1.5}}
    name = f"pool-{aggregate[:8]}"
    made = make_provider(placement.send, name, disk, [SHARED], aggregates=[aggregate])
    return made, aggregate


def put(placement, provider, aspect, **content):
    path = f"/resource_providers/{provider}"
    body = {"resource_provider_generation": placement.get(path)["generation"], **content}
    answer = placement.request("PUT", f"{path}/{aspect}", json=body)
    assert answer.ok, answer.text


def disk(placement, provider):
    return placement.get(f"/resource_providers/{provider}/inventories")["inventories"]["DISK_GB"]


def test_one_agent_writes_and_the_other_finds_it_right(placement, proxy, new_agent, pool):
    provider, aggregate = pool
    claim(placement, provider, {"DISK_GB": 1})
    agents = []
    for _ in range(2):
        name = f"host-{uuid.uuid4().hex[:8]}"
        agent = new_agent(
            proxy.url,
            DEFAULT={"host": name},
            compute_agent={"shared_disk_provider": provider.upper()},
            compute={"resource_provider_association_refresh": 1},
        )
        agent.script(nodes=[name], local_gb=100)
        with running(agent):
            # a thread of its own looks, behind the pass
            eventually(lambda agent=agent: "shares no disk" in agent.logged(), "it looked")
        put(placement, placement.root(name)["uuid"], "aggregates", aggregates=[aggregate])
        agents.append((agent, name))
    (one, first), (two, second) = agents
    with running(one), running(two):
        for agent, name in agents:
            agent.script(nodes=[name], local_gb=101)
            agent.report()
        before = placement.get(f"/resource_providers/{provider}")["generation"]
        assert disk(placement, provider)["total"] == 100, "within a hundredth"
        one.script(nodes=[first], local_gb=200)
        two.script(nodes=[second], local_gb=201)
        eventually(lambda: disk(placement, provider)["total"] >= 200, "the total follows the pool")
        looks = f"GET /resource_providers/{provider}/inventories"
        proxy.requests.clear()
        for agent, _ in agents:
            for _ in range(3):
                agent.report()
        eventually(
            lambda: (
                sum("GiB of disk now" in agent.logged() for agent, _ in agents) == 1
                and not placement_is_asked(proxy, looks, agents)
            ),
            "both agree",
        )
        found = disk(placement, provider)
        assert found["total"] in (200, 201)
        assert (found["reserved"], found["allocation_ratio"]) == (10, 1.5)
        assert placement.get(f"/resource_providers/{provider}")["generation"] == before + 1


def placement_is_asked(proxy, request, agents):
    """Whether more passes make agents look at the provider again."""
    proxy.requests.clear()
    for agent, _ in agents:
        agent.report()
    return request in proxy.requests


def test_a_disk_that_cannot_be_measured_is_said_at_the_start_and_in_the_status(
    placement, new_agent, node, tmp_path
):
    agent = new_agent(
        placement.url,
        DEFAULT={
            "compute_driver": "host.HostDriver",
            "host": node,
            "instances_path": tmp_path / "not-mounted",
        },
    )
    with running(agent):
        [caveat] = agent.node()["caveats"]
        assert caveat.startswith(f"{node} reports no DISK_GB: cannot read {tmp_path}/not-mounted")
        assert agent.logged().count(caveat) == 1
        assert f"warning: {caveat}" in agent.run("status").stdout
