"""Requests that a server group costs: as many for 500 members as for two."""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from compute_agent.placement.transports.transport import Transport
from compute_agent.request.spec import InstanceGroup, RequestSpec
from compute_agent.scheduler.claiming.claims import GiveBack
from compute_agent.scheduler.claiming.journal import Journal
from compute_agent.scheduler.errors import NoValidHost
from compute_agent.scheduler.explanation import Explainer
from compute_agent.scheduler.filters import affinity
from compute_agent.scheduler.manager import Scheduler, SelectionOptions
from compute_agent.scheduler.placement.client import PlacementClient
from compute_agent.scheduler.search.search import HostSearch, HostSearchOptions
from compute_agent.scheduler.weighers.host_weigher import (
    CPUWeigher,
    ServerGroupSoftAffinityWeigher,
    ServerGroupSoftAntiAffinityWeigher,
)
from compute_agent.testing.transports import RecordingTransport
from tests.fixtures.allocations import claim_body, new_uuid
from tests.functional.either_placement import KINDS
from tests.functional.scheduler.moving import World
from tests.unit.scheduler.specs import spec

SIZES = (2, 50, 500)
GATHERING = ("affinity", "soft-affinity")
PARTING = ("anti-affinity", "soft-anti-affinity")


pytestmark = pytest.mark.parametrize("placement", KINDS, indirect=True, scope="module")


@pytest.fixture(scope="module")
def elsewhere(
    placement: Transport, tmp_path_factory: pytest.TempPathFactory
) -> dict[int, frozenset[str]]:
    """As many consumers as groups have members, on a host that no request of these tests is for."""
    world = World(placement, tmp_path_factory.mktemp("full") / "journal")
    full = world.provider("full", {"VCPU": sum(SIZES)}, "COMPUTE_NODE")
    found = {size: frozenset(new_uuid() for _ in range(size)) for size in SIZES}
    for members in found.values():
        one_cpu = claim_body({full: {"VCPU": 1}})
        world.call("POST", "/allocations", dict.fromkeys(members, one_cpu))
    return found


@dataclass
class Group:
    """Hosts of one test, of which the largest has a member on one of its cells.

    :ivar members: that one, which is the first of all, and those that are elsewhere.
    """

    world: World
    members: frozenset[str]
    mark: str = field(default_factory=lambda: f"CUSTOM_T{uuid.uuid4().hex[:12].upper()}")

    def __post_init__(self) -> None:
        self.world.provider("crowded", {}, "COMPUTE_NODE", self.mark)
        cells = [
            self.world.provider(
                f"cell{n}", {"VCPU": 64, "MEMORY_MB": 4096}, "HW_NUMA_ROOT", parent="crowded"
            )
            for n in range(2)
        ]
        for name, vcpus in (("next", 32), ("last", 16)):
            self.world.provider(name, {"VCPU": vcpus, "MEMORY_MB": 4096}, "COMPUTE_NODE", self.mark)
        first = f"00000000{new_uuid()[8:]}"
        self.world.claim(first, {cells[1]: {"VCPU": 1}})
        self.members |= {first}

    def spec(self, policy: str, **rules: object) -> RequestSpec:
        hosts = rules.pop("hosts", frozenset())
        group = InstanceGroup(policy, rules, hosts=hosts, members=self.members)  # type: ignore[arg-type]
        asked = spec({"root_required": self.mark}, vcpus=1, memory_mb=16, root_gb=0)
        return replace(asked, instance_group=group)

    def name_of(self, short: str) -> str:
        return next(f"{n}-{u}" for u, n in self.world.names.items() if n == short)

    def select(self, asked: RequestSpec, *instances: str) -> tuple[list[set[str]], list[str]]:
        """Claim; return the providers of each instance, and the requests that it took."""
        recorded = RecordingTransport(self.world.transport)
        client = PlacementClient(recorded)
        search = HostSearch(
            client,
            HostSearchOptions(
                filters=(
                    affinity.ServerGroupAntiAffinityFilter(),
                    affinity.ServerGroupAffinityFilter(),
                )
            ),
        )
        weighers = (
            CPUWeigher(),
            ServerGroupSoftAffinityWeigher(),
            ServerGroupSoftAntiAffinityWeigher(),
        )
        give_back = GiveBack(client, Journal(self.world.journal))
        options = SelectionOptions(weighers=weighers)
        explainer = Explainer(client, search)
        scheduler = Scheduler(
            client, search, options, give_back, random.Random(1), explainer=explainer
        )
        instances = instances or (new_uuid(),)
        scheduler.select_destinations(asked, instances)
        return [set(self.world.held(instance)) for instance in instances], recorded.requests


@pytest.fixture
def groups(world: World, elsewhere: dict[int, frozenset[str]]) -> dict[int, Group]:
    return {
        size: Group(World(world.transport, world.journal), members)
        for size, members in elsewhere.items()
    }


@pytest.mark.parametrize("policy", [*PARTING, *GATHERING])
def test_a_request_for_a_group_costs_the_same_whatever_its_size(
    groups: dict[int, Group], policy: str
) -> None:
    costs = {}
    for size, group in groups.items():
        [providers], requests = group.select(group.spec(policy))
        if policy in PARTING:
            assert providers == {"next"}
        else:
            assert providers < {"cell0", "cell1"}
        costs[size] = len(requests)
    assert len(set(costs.values())) == 1, costs


@pytest.mark.parametrize("policy", [*PARTING, *GATHERING])
def test_before_the_claim_nothing_is_asked_about_a_group_whose_hosts_are_named(
    groups: dict[int, Group], policy: str
) -> None:
    for group in groups.values():
        hosts = frozenset({group.name_of("crowded")})
        _, without = group.select(replace(group.spec(policy), instance_group=None))
        [providers], requests = group.select(group.spec(policy, hosts=hosts))
        assert (providers == {"next"}) is (policy in PARTING)
        # after the claim the host is asked for members that were claimed there at the same time
        assert len(requests) == len(without) + (policy == "anti-affinity")


def test_several_members_cost_one_look_at_each_of_their_hosts(groups: dict[int, Group]) -> None:
    costs = {}
    for size, group in groups.items():
        placed, requests = group.select(group.spec("anti-affinity"), new_uuid(), new_uuid())
        assert sorted(placed, key=str) == [{"last"}, {"next"}]
        costs[size] = len(requests)
    assert len(set(costs.values())) == 1, costs


def test_a_host_may_have_as_many_members_as_the_rule_says(
    world: World, elsewhere: dict[int, frozenset[str]]
) -> None:
    group = Group(world, elsewhere[50])
    placed, _ = group.select(group.spec("anti-affinity", max_server_per_host=2), new_uuid())
    assert placed[0] < {"cell0", "cell1"}
    named = {"hosts": frozenset({group.name_of("crowded")}), "max_server_per_host": 2}
    later = group.spec("anti-affinity", **named)
    assert later.instance_group is not None
    everyone = group.members | {_holder(world)}
    later = replace(later, instance_group=replace(later.instance_group, members=everyone))
    placed, _ = group.select(later, new_uuid())
    assert placed == [{"next"}], "two members are there now"


def _holder(world: World) -> str:
    """Return a new consumer on the crowded host."""
    consumer = new_uuid()
    cell = next(uuid for uuid, name in world.names.items() if name == "cell0")
    world.claim(consumer, {cell: {"VCPU": 1}})
    return consumer


def test_a_group_that_has_a_member_on_each_host_is_told_so(world: World) -> None:
    group = Group(world, frozenset())
    here = frozenset(new_uuid() for _ in range(2))
    places = dict(zip(sorted(here), ("next", "last"), strict=True))
    roots = {name: uuid for uuid, name in world.names.items()}
    for member, name in places.items():
        world.claim(member, {roots[name]: {"VCPU": 1}})
    group.members |= here
    with pytest.raises(NoValidHost) as failure:
        group.select(group.spec("anti-affinity"))
    assert "ServerGroupAntiAffinityFilter dropped the last 3 host(s)" in failure.value.reason
    [cause] = [c for c in failure.value.causes.filters if c.rejected]
    reasons = {rejected.reason for rejected in cause.rejected}
    assert reasons == {"has 1 of at most 1 members of the group"}
