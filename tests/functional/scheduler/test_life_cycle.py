"""Operations of the life of an instance, each carried out twice."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins

from compute_agent.conf import new_config
from compute_agent.errors import AllocationMoveFailed, AllocationUpdateFailed
from compute_agent.placement.transports.transport import Transport
from compute_agent.request.candidate_request import RequestGroup
from compute_agent.request.spec import RequestedGroup, RequestSpec
from compute_agent.scheduler.assembly import parts_of
from compute_agent.scheduler.claiming.journal import Journal
from compute_agent.scheduler.errors import MoveRefused, NoValidHost
from compute_agent.scheduler.fleet.announcements import Announcements
from compute_agent.scheduler.moves.move import MoveKind
from compute_agent.scheduler.python_api import LifeCycle
from tests.functional.either_placement import KINDS
from tests.functional.scheduler.guests import NestedOnPool
from tests.functional.scheduler.moving import World
from tests.unit.scheduler.specs import spec

pytestmark = pytest.mark.parametrize("placement", KINDS, indirect=True, scope="module")


def operations_on(
    world: World, heard: Announcements | None = None, *, self_claim: str = "never"
) -> LifeCycle:
    """The operations of a scheduler of its own on a placement.

    :param self_claim: "auto": one that serves, while agents may claim themselves.
    """
    conf = new_config([])
    conf.set_override("journal_path", str(world.journal), "compute_scheduler")
    conf.set_override("legacy_self_claim", self_claim, "compute_agent")
    return LifeCycle(parts_of(conf, world.transport, heard, serving=self_claim == "auto"))


class Instance:
    """An instance on one of three hosts of its own, and the operations on it."""

    def __init__(self, transport: Any, path: Path) -> None:
        self.world = World(transport, path / "journal")
        self.trait = f"CUSTOM_T{uuid.uuid4().hex[:12].upper()}"
        for name in "abc":
            self.world.provider(name, {"VCPU": 4}, self.trait, "COMPUTE_NODE", "OWNER_NOVA")
            self.world.provider(f"{name}-gpu", {"VGPU": 2}, parent=name)
        self.uuid = str(uuid.uuid4())

    def spec(self, vcpus: int = 2, **fields: Any) -> RequestSpec:
        traits = {"root_required": self.trait}
        return spec(traits, vcpus=vcpus, memory_mb=0, root_gb=0, **fields)

    def operations(self, announcements: Announcements | None = None) -> LifeCycle:
        return operations_on(self.world, announcements)

    @property
    def held(self) -> Any:
        return self.world.held(self.uuid)


@pytest.fixture
def instance(placement: Transport, tmp_path: Path) -> Instance:
    return Instance(placement, tmp_path)


def test_a_claim_that_is_repeated_is_the_same_and_another_one_is_refused(
    instance: Instance,
) -> None:
    group = RequestedGroup("card", RequestGroup({"VGPU": 1}))
    asked = instance.spec(requested_groups=(group,))
    first = instance.operations().claim(asked, instance.uuid)
    # another scheduler hears of it again, because the caller never got the answer
    again = instance.operations().claim(asked, instance.uuid)
    assert (again.host, again.allocations, dict(again.mappings)) == (
        first.host,
        first.allocations,
        dict(first.mappings),
    )
    with pytest.raises(AllocationUpdateFailed, match="holds allocations already"):
        instance.operations().claim(instance.spec(vcpus=3), instance.uuid)
    assert [instance.operations().release(instance.uuid) for _ in range(2)] == [True, False]
    assert instance.held == {}


@pytest.mark.parametrize("is_repeated", [True, False])
def test_a_claim_whose_answer_was_lost_is_given_back_unless_the_caller_repeated_it(
    instance: Instance, is_repeated: bool
) -> None:
    asked = instance.spec()
    claim = instance.operations().claim(asked, instance.uuid)
    # the scheduler that made it got no answer, and could not give it back then
    Journal(instance.world.journal).open(
        {"op": "give_back", "consumer": instance.uuid, "allocations": dict(claim.allocations)}
    )
    if is_repeated:
        assert instance.operations().claim(asked, instance.uuid).host == claim.host
    other = str(uuid.uuid4())
    instance.operations().claim(asked, other)
    assert bool(instance.held) is is_repeated
    assert Journal(instance.world.journal).entries() == {}


def test_a_reschedule_replaces_the_claim_and_ends_without_one_when_all_hosts_failed(
    instance: Instance,
) -> None:
    operations, asked = instance.operations(), instance.spec()
    tried = [operations.claim(asked, instance.uuid).host]
    for _ in range(2):
        claim = operations.reschedule(asked, instance.uuid, tried)
        assert claim.host not in tried
        again = operations.reschedule(asked, instance.uuid, tried)
        assert (again.host, again.allocations) == (claim.host, claim.allocations)
        assert sum(amounts["VCPU"] for amounts in instance.held.values()) == 2
        tried.append(claim.host)
    with pytest.raises(NoValidHost):
        operations.reschedule(asked, instance.uuid, tried)
    assert instance.held == {}


def test_a_move_that_is_begun_twice_is_one_move_and_a_delete_ends_both_consumers(
    instance: Instance,
) -> None:
    operations, migration = instance.operations(), str(uuid.uuid4())
    operations.claim(instance.spec(), instance.uuid)
    source = instance.held
    begin = (MoveKind.LIVE, instance.spec(), instance.uuid, migration)
    first = operations.begin_move(*begin)
    again = instance.operations().begin_move(*begin)
    assert again.move == first.move
    for _ in range(2):
        operations.revert_move(again.move)
        assert (instance.held, instance.world.held(migration)) == (source, {})
    operations.begin_move(*begin)
    assert [operations.delete(instance.uuid, [migration]) for _ in range(2)] == [True, False]
    assert (instance.held, instance.world.held(migration)) == ({}, {})


def test_an_evacuation_that_is_repeated_is_one_and_can_be_reverted(instance: Instance) -> None:
    operations = instance.operations()
    claim = operations.claim(instance.spec(), instance.uuid)
    source = instance.held
    first = operations.evacuate(instance.spec(), instance.uuid, claim.root)
    again = instance.operations().evacuate(instance.spec(), instance.uuid, claim.root)
    assert again.move == first.move
    operations.revert_move(again.move)
    assert instance.held == source
    operations.evacuate(instance.spec(), instance.uuid, claim.root)
    for _ in range(2):
        operations.source_returned(instance.uuid, claim.root)
        assert not set(instance.held) & set(source)


def test_disk_on_a_shared_pool_is_known_again_for_a_live_move_and_not_for_a_resize(
    world: World,
) -> None:
    place = NestedOnPool(world)
    operations = operations_on(place.world)
    guest, migration = str(uuid.uuid4()), str(uuid.uuid4())
    place.claimed(guest, "a")
    begun = operations.begin_move(MoveKind.LIVE, place.asked(), guest, migration)
    assert operations.begin_move(MoveKind.LIVE, place.asked(), guest, migration).move == begun.move
    with pytest.raises(MoveRefused, match="what begin returned"):
        operations.begin_move(MoveKind.COLD, place.asked(), guest, migration)
    operations.revert_move(begun.move)
    assert place.world.held(guest) == place.on("a")


def test_what_is_attached_and_detached_twice_is_so_once(instance: Instance) -> None:
    operations = instance.operations()
    before = operations.claim(instance.spec(), instance.uuid).allocations
    card = RequestSpec(
        "project", "user", requested_groups=(RequestedGroup("card", RequestGroup({"VGPU": 1})),)
    )
    first = operations.attach(card, instance.uuid, before)
    again = operations.attach(card, instance.uuid, before)
    assert (again.allocations, dict(again.mappings)) == (first.allocations, dict(first.mappings))
    assert sum(amounts.get("VGPU", 0) for amounts in instance.held.values()) == 1
    together = {**before, **first.allocations}
    for _ in range(2):
        operations.detach(instance.uuid, first.allocations, together)
        assert len(instance.held) == 1
    with pytest.raises(AllocationMoveFailed, match="neither"):
        operations.detach(instance.uuid, before, together)


def test_a_local_delete_is_refused_while_the_agent_is_alive(instance: Instance) -> None:
    now = [0.0]
    heard = Announcements(lambda: now[0])
    operations = instance.operations(heard)
    claim = operations.claim(instance.spec(), instance.uuid)
    heard.receive({"host": claim.host, "nodes": [{"uuid": claim.root}]})
    with pytest.raises(MoveRefused, match="is alive"):
        operations.local_delete(instance.uuid)
    assert instance.held
    now[0] = 3600.0
    assert [operations.local_delete(instance.uuid) for _ in range(2)] == [True, False]


def test_several_instances_are_claimed_together_or_not_at_all_and_what_would_fit_is_named(
    instance: Instance,
) -> None:
    group = RequestedGroup("card", RequestGroup({"VGPU": 1}))
    asked = instance.spec(requested_groups=(group,))
    scheduler = instance.operations()._parts.scheduler
    instances = [str(uuid.uuid4()) for _ in range(5)]
    selections = scheduler.select_destinations(asked, instances)
    assert len({of_one[0].compute_node_uuid for of_one in selections}) == 3
    used = instance.world.used()
    assert {name: used[name]["VCPU"] for name in "abc"} in (
        {"a": 4, "b": 4, "c": 2},
        {"a": 4, "b": 2, "c": 4},
        {"a": 2, "b": 4, "c": 4},
    )
    with pytest.raises(NoValidHost):
        scheduler.select_destinations(asked, [str(uuid.uuid4()) for _ in range(2)])
    assert instance.world.used() == used
    with pytest.raises(NoValidHost) as refused:
        instance.operations().claim(instance.spec(vcpus=4), instance.uuid)
    lowered = {"group": "", "resource_class": "VCPU", "from": 4, "to": 2}
    [flat] = [query for query in refused.value.causes.queries if query.shape == "flat"]
    assert flat.candidates == 0
    # the published placement explains nothing
    if flat.explanation is not None:
        # without its trait it would fit on the hosts of other tests as well
        assert [lowered] in [closest["changes"] for closest in flat.explanation["closest"]]


def test_a_claim_says_that_nothing_is_claimed_while_agents_claim_themselves(
    instance: Instance,
) -> None:
    heard = Announcements()
    operations = operations_on(instance.world, heard, self_claim="auto")

    def announce(version: int) -> None:
        nodes = [{"uuid": new} for new, name in instance.world.names.items() if name in "abc"]
        heard.receive({"host": "h", "nodes": nodes, "service_version": version})

    announce(0)
    claim = operations.claim(instance.spec(), instance.uuid)
    assert to_builtins(claim)["claimed"] is False
    assert claim.allocations
    assert instance.held == {}
    announce(1)
    claim = operations.claim(instance.spec(), instance.uuid)
    assert to_builtins(claim)["claimed"] is True
    assert instance.held
