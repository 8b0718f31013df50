"""Claims on providers for which placement loses every race, or which were deleted meanwhile."""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from compute_agent.errors import AllocationMoveFailed, AllocationUpdateFailed
from compute_agent.placement.connection import CONFLICT_TRIES
from compute_agent.placement.transports.transport import Response
from compute_agent.request.spec import InstanceGroup, RequestSpec
from compute_agent.scheduler.errors import NoValidHost
from compute_agent.scheduler.filters.affinity import ServerGroupAntiAffinityFilter
from compute_agent.scheduler.moves.move import MoveKind
from tests.functional.scheduler.moving import FailingTransport, World
from tests.functional.scheduler.schedulers import claimed_by
from tests.unit.scheduler.specs import spec

RACE = (
    "There was a conflict when trying to complete your request.\n\n Another thread concurrently "
    "updated the data. Please retry your update"
)
CONSUMER_CONFLICT = (
    "There was a conflict when trying to complete your request.\n\n consumer generation conflict - "
    "expected 0 but got 1"
)


def refusal(detail: str) -> Response:
    error = {
        "status": 409,
        "title": "Conflict",
        "detail": detail,
        "code": "placement.concurrent_update",
        "request_id": "req-1",
    }
    body = {"errors": [error]}
    return Response(409, {}, json.dumps(body).encode())


@dataclass
class RefusedClaims(FailingTransport):
    """Refuses every write that claims one of the providers; the rest goes through."""

    after: int = 0
    providers: Collection[str] = ()
    detail: str = RACE
    refused: list[str] = field(default_factory=list)

    def before(self, method: str, path: str, body: Any) -> Response | None:
        if method not in ("PUT", "POST") or not path.startswith("/allocations"):
            return None
        hit = [provider for provider in self.providers if provider in json.dumps(body)]
        self.refused += hit
        return refusal(self.detail) if hit else None

    def lose(self, _method: str, _path: str, _body: Any, answer: Response) -> Response:
        return answer


class Hosts:
    """Hosts of one test; the larger one is the first choice."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.mark = f"CUSTOM_T{uuid.uuid4().hex[:12].upper()}"
        self.first = self.host("first", 8)
        self.second = self.host("second", 4)

    def host(self, name: str, cards: int) -> str:
        root = self.world.provider(name, {"VCPU": 8}, "COMPUTE_NODE", self.mark)
        for index in range(cards):
            self.world.provider(f"{name}-card{index}", {"VGPU": 1}, parent=name)
        return root

    def uuid_of(self, name: str) -> str:
        return next(uuid for uuid, short in self.world.names.items() if short == name)

    def asked(self) -> RequestSpec:
        extra = {"root_required": self.mark, "resources_CARD:VGPU": "1"}
        return spec(extra, vcpus=1, memory_mb=0, root_gb=0)

    def claim_on(self, name: str, consumer: str) -> None:
        """Claim one card of a host, past every scheduler."""
        card = self.uuid_of(f"{name}-card0")
        self.world.claim(consumer, {self.uuid_of(name): {"VCPU": 1}, card: {"VGPU": 1}})

    def claim(self, raced: RefusedClaims) -> set[str]:
        """The providers of a claim, by short name."""
        consumer = str(uuid.uuid4())
        mover, _ = self.world.mover(raced)
        mover._scheduler.select_destinations(self.asked(), [consumer])
        return set(self.world.held(consumer))


@pytest.fixture
def hosts(world: World) -> Hosts:
    return Hosts(world)


def test_after_a_claim_that_loses_every_race_the_next_candidate_of_the_host_is_tried(
    hosts: Hosts,
) -> None:
    class FirstTwo(RefusedClaims):
        def before(self, method: str, path: str, body: Any) -> Response | None:
            claimed = claimed_by(method, path, body)
            if not claimed:
                return None
            [card] = [uuid for uuid in claimed if "card" in hosts.world.names[uuid]]
            if len(self.providers) < 2:
                self.providers = {*self.providers, card}
            return refusal(RACE) if self.refuse(card) else None

        def refuse(self, card: str) -> bool:
            self.refused += [card] * (card in self.providers)
            return card in self.providers

    raced = FirstTwo()
    [root, card] = sorted(hosts.claim(raced), key=len)
    lost = {hosts.world.names[uuid] for uuid in raced.providers}
    assert len(lost) == 2
    assert card not in lost
    assert {name.partition("-")[0] for name in lost} == {root}
    assert len(raced.refused) == 2 * CONFLICT_TRIES


def test_after_a_host_on_which_every_claim_loses_every_race_the_next_host_is_tried(
    hosts: Hosts,
) -> None:
    for racing, other in (("first", "second"), ("second", "first")):
        raced = RefusedClaims(providers=[hosts.uuid_of(racing)])
        assert other in hosts.claim(raced)


def test_no_host_is_valid_once_all_candidates_lost_their_races_and_the_causes_name_them(
    hosts: Hosts,
) -> None:
    raced = RefusedClaims(providers=[hosts.first, hosts.second])
    with pytest.raises(NoValidHost, match="Another thread concurrently updated") as caught:
        hosts.claim(raced)
    lost = caught.value.as_dict()["causes"]["claims_lost"]
    assert len(lost) == 8 + 4
    assert {claim["host"].partition("-")[0] for claim in lost} == {"first", "second"}
    assert all("Another thread" in claim["detail"] for claim in lost)
    assert len(raced.refused) == len(lost) * CONFLICT_TRIES


def test_a_consumer_that_somebody_else_changes_ends_the_request_at_once(hosts: Hosts) -> None:
    raced = RefusedClaims(providers=[hosts.first, hosts.second], detail=CONSUMER_CONFLICT)
    with pytest.raises(AllocationUpdateFailed):
        hosts.claim(raced)
    assert len(raced.refused) <= 4


def test_a_host_that_is_deleted_between_the_question_and_the_claim_costs_its_candidates(
    hosts: Hosts,
) -> None:
    removed: list[str] = []

    class DeletedProvider(RefusedClaims):
        def before(self, method: str, path: str, body: Any) -> Response | None:
            claimed = claimed_by(method, path, body)
            if claimed and not removed:
                [root] = {hosts.first, hosts.second} & claimed.keys()
                removed.append(hosts.world.names[root])
                own = [u for u, name in hosts.world.names.items() if name.startswith(removed[0])]
                for provider in sorted(own, key=lambda uuid: uuid == root):
                    hosts.world.call("DELETE", f"/resource_providers/{provider}")
            return None

    claimed = hosts.claim(DeletedProvider())
    assert removed
    assert not any(name.startswith(removed[0]) for name in claimed)


def test_a_move_whose_destination_loses_every_race_goes_to_the_next(hosts: Hosts) -> None:
    third = hosts.host("third", 2)
    instance, migration = str(uuid.uuid4()), str(uuid.uuid4())
    hosts.world.scheduler().select_destinations(hosts.asked(), [instance])
    held = set(hosts.world.held(instance))
    roots = {"first": hosts.first, "second": hosts.second, "third": third}
    raced_root, expected = sorted(set(roots) - held)
    mover, _ = hosts.world.mover(RefusedClaims(providers=[roots[raced_root]]))
    begun = mover.begin(MoveKind.LIVE, hosts.asked(), instance, migration)
    assert begun.selections[0].compute_node_uuid == roots[expected]
    assert set(hosts.world.held(migration)) == held

    raced, _ = hosts.world.mover(RefusedClaims(providers=held and [hosts.uuid_of(min(held))]))
    with pytest.raises(AllocationMoveFailed, match="repeat the step"):
        raced.revert(begun.move)
    assert expected in hosts.world.held(instance)
    hosts.world.mover()[0].revert(begun.move)
    assert set(hosts.world.held(instance)) == held


def of_older(path: str) -> Response | None:
    """What a placement without extensions says where its answer differs."""
    if path.startswith("/provider_trees"):
        error = {"status": 404, "title": "Not Found", "detail": "No such path."}
        return Response(404, {}, json.dumps({"errors": [error]}).encode())
    if path == "/":
        version = {"id": "v1.0", "min_version": "1.0", "max_version": "1.39"}
        return Response(200, {}, json.dumps({"versions": [version]}).encode())
    return None


@dataclass
class MemberFirst(RefusedClaims):
    """A member of the group claims on the same host just before, and then placement is older."""

    hosts: Hosts = field(kw_only=True)
    member: str = field(kw_only=True)
    taken: str = ""

    def before(self, method: str, path: str, body: Any) -> Response | None:
        claimed = claimed_by(method, path, body)
        if claimed and not self.taken:
            [self.taken] = {self.hosts.world.names[uuid] for uuid in claimed} & {"first", "second"}
            self.hosts.claim_on(self.taken, self.member)
            return None
        return of_older(path) if self.taken else None


def test_members_of_a_group_are_looked_up_when_placement_is_rolled_back_meanwhile(
    world: World,
) -> None:
    hosts = Hosts(world)
    member, consumer = str(uuid.uuid4()), str(uuid.uuid4())
    raced = MemberFirst(hosts=hosts, member=member)
    mover, _ = world.mover(raced, filters=(ServerGroupAntiAffinityFilter(),))
    group = InstanceGroup(policy="anti-affinity", members=frozenset({member}))
    asked = replace(hosts.asked(), instance_group=group)
    mover._scheduler.select_destinations(asked, [consumer])
    assert raced.taken in world.held(member)
    assert raced.taken not in world.held(consumer)
