"""Moves of instances in a real placement: what the consumers hold after every step and failure."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from compute_agent.errors import AllocationMoveFailed, PlacementUnavailable
from compute_agent.report.transport import InProcessTransport
from compute_agent.scheduler.errors import MoveRefused, NoValidHost
from compute_agent.scheduler.journal import Journal
from compute_agent.scheduler.manager import Scheduler
from compute_agent.scheduler.move import Move, MoveKind, move_of
from compute_agent.scheduler.moves import Begun, Mover
from compute_agent.scheduler.placement_port import Placement
from compute_agent.scheduler.spec import RequestSpec
from tests.functional.api.differential.reference import Reference, ReferenceMissing
from tests.functional.report.conftest import PipeTransport, ours
from tests.functional.scheduler.moving import SHARING, Failing, Held, World, together
from tests.unit.scheduler.specs import spec

COLD, LIVE, EVACUATE = MoveKind.COLD, MoveKind.LIVE, MoveKind.EVACUATE
POOL_AGGREGATE = "77777777-7777-7777-7777-777777777777"


@pytest.fixture(scope="module")
def placement(tmp_path_factory: pytest.TempPathFactory) -> InProcessTransport:
    return InProcessTransport(ours(tmp_path_factory.mktemp("placement")))


@pytest.fixture
def world(placement: InProcessTransport, tmp_path: Path) -> World:
    return World(placement, tmp_path / "journal")


def new_uuid() -> str:
    return str(uuid.uuid4())


class Place:
    """Two hosts of one kind, told from those of other tests by a trait, and what one guest takes.

    ``on("a")`` is what the guest holds on host a; ``shared`` what of it is on a common provider.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.trait = f"CUSTOM_T{uuid.uuid4().hex[:12].upper()}"
        self.hosts: dict[str, str] = {}

    def asked(self, **fields: int) -> RequestSpec:
        sizes = {"vcpus": 2, "memory_mb": 0, "root_gb": 0} | fields
        return spec({"root_required": self.trait}, **sizes)

    def claimed(self, instance: str, on: str) -> None:
        """Claim for a guest on one host."""
        root = self.hosts[on]
        name = f"{on}-{root}"
        forced = spec(
            {"root_required": self.trait},
            vcpus=2,
            memory_mb=0,
            root_gb=self.asked().flavor.root_gb,
            force_hosts=frozenset({name}),
        )
        self.world.scheduler().select_destinations(forced, [instance])
        assert self.world.held(instance) == self.on(on)

    def fill(self, host: str) -> None:
        """Use up the CPUs of a host."""
        whole = spec(
            {"root_required": self.trait},
            vcpus=4,
            memory_mb=0,
            root_gb=0,
            force_hosts=frozenset({f"{host}-{self.hosts[host]}"}),
        )
        self.world.scheduler().select_destinations(whole, [new_uuid()])

    def on(self, host: str) -> Held:
        raise NotImplementedError

    @property
    def shared(self) -> Held:
        return {}


class Flat(Place):
    """Hosts that have everything on their root."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        for name in "ab":
            self.hosts[name] = world.provider(name, {"VCPU": 4}, self.trait, "COMPUTE_NODE")

    def on(self, host: str) -> Held:
        return {host: {"VCPU": 2}}


class NestedOnPool(Place):
    """Hosts whose roots give nothing: CPUs on cells, disk on a pool that both share."""

    def __init__(self, world: World, room: int = 5) -> None:
        super().__init__(world)
        aggregate = new_uuid()
        # room for the guest's disk once, so that nothing fits that would count it twice
        world.provider("pool", {"DISK_GB": room}, SHARING, aggregates=(aggregate,))
        for name in "ab":
            self.hosts[name] = world.provider(
                name, {}, self.trait, "COMPUTE_NODE", aggregates=(aggregate,)
            )
            world.provider(
                f"{name}0", {"VCPU": 4}, "HW_NUMA_ROOT", parent=name, aggregates=(aggregate,)
            )

    def asked(self, **fields: int) -> RequestSpec:
        return super().asked(**({"root_gb": 5} | fields))

    def on(self, host: str) -> Held:
        return {f"{host}0": {"VCPU": 2}, "pool": {"DISK_GB": 5}}

    @property
    def shared(self) -> Held:
        return {"pool": {"DISK_GB": 5}}


def without(held: Held, part: Held) -> Held:
    return {name: amounts for name, amounts in held.items() if name not in part}


KINDS: list[Callable[[World], Place]] = [Flat, NestedOnPool]


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, world: World) -> Place:
    made: Place = request.param(world)
    return made


class Guest:
    """A guest on host a, and its moves."""

    def __init__(self, place: Place) -> None:
        self.place, self.world = place, place.world
        self.instance, self.migration = new_uuid(), new_uuid()
        place.claimed(self.instance, "a")

    def begin(self, kind: MoveKind, mover: Mover | None = None) -> Begun:
        asked = self.place.asked()
        if kind is COLD:
            name = f"a-{self.place.hosts['a']}"
            asked = spec(
                {"root_required": self.place.trait},
                vcpus=2,
                memory_mb=0,
                root_gb=asked.flavor.root_gb,
                ignore_hosts=frozenset({name}),
            )
        migration = "" if kind is EVACUATE else self.migration
        return (mover or self.world.mover()[0]).begin(kind, asked, self.instance, migration)

    @property
    def state(self) -> tuple[Held, Held]:
        """What the instance and the migration hold; placement's sums must be just that."""
        held = self.world.held(self.instance), self.world.held(self.migration)
        assert self.world.used() == together(*held)
        return held

    def open_lines(self) -> int:
        return len(Journal(self.world.journal).entries())


@pytest.fixture
def guest(place: Place) -> Guest:
    return Guest(place)


@pytest.mark.parametrize("kind", [COLD, LIVE])
def test_while_a_guest_moves_the_migration_holds_the_source_and_a_pool_counts_once(
    guest: Guest, kind: MoveKind
) -> None:
    place = guest.place
    begun = guest.begin(kind)
    assert guest.state == (place.on("b"), without(place.on("a"), place.shared))
    assert begun.move.destination_root == place.hosts["b"]
    assert begun.selections[0].compute_node_uuid == place.hosts["b"]
    types = guest.world.type_of(guest.instance), guest.world.type_of(guest.migration)
    assert types == ("INSTANCE", "MIGRATION")
    assert guest.open_lines() == 0


@pytest.mark.parametrize("kind", [COLD, LIVE])
def test_a_confirmed_move_leaves_the_destination_alone(guest: Guest, kind: MoveKind) -> None:
    begun = guest.begin(kind)
    mover, _ = guest.world.mover()
    mover.finish(begun.move)
    assert guest.state == (guest.place.on("b"), {})
    mover.finish(begun.move)
    assert guest.state == (guest.place.on("b"), {})


@pytest.mark.parametrize("kind", [COLD, LIVE])
def test_a_reverted_move_leaves_the_source_as_it_was(guest: Guest, kind: MoveKind) -> None:
    begun = guest.begin(kind)
    mover, _ = guest.world.mover()
    mover.revert(begun.move)
    assert guest.state == (guest.place.on("a"), {})
    assert guest.world.type_of(guest.instance) == "INSTANCE"
    mover.revert(begun.move)
    assert guest.state == (guest.place.on("a"), {})


def test_an_evacuated_guest_holds_both_places_until_its_source_is_back(guest: Guest) -> None:
    place = guest.place
    begun = guest.begin(EVACUATE)
    both = {**place.on("a"), **place.on("b")}
    assert guest.state == (both, {})
    mover, _ = guest.world.mover()
    mover.finish(begun.move)
    assert guest.state == (both, {})
    mover.source_returned(guest.instance, place.hosts["a"])
    assert guest.state == (place.on("b"), {})
    mover.source_returned(guest.instance, place.hosts["a"])
    assert guest.state == (place.on("b"), {})


def test_an_evacuation_that_failed_is_reverted(guest: Guest) -> None:
    begun = guest.begin(EVACUATE)
    guest.world.mover()[0].revert(begun.move)
    assert guest.state == (guest.place.on("a"), {})


def test_a_source_that_returns_never_takes_the_only_place_of_a_guest(guest: Guest) -> None:
    with pytest.raises(MoveRefused, match="on no other host"):
        guest.world.mover()[0].source_returned(guest.instance, guest.place.hosts["a"])
    assert guest.state == (guest.place.on("a"), {})
    assert guest.open_lines() == 0


@pytest.mark.parametrize("kind", list(MoveKind))
def test_without_a_destination_a_guest_stays_as_it_was(guest: Guest, kind: MoveKind) -> None:
    guest.place.fill("b")
    before = guest.world.held(guest.instance)
    with pytest.raises(NoValidHost):
        guest.begin(kind)
    assert guest.world.held(guest.instance) == before
    assert guest.world.held(guest.migration) == {}
    assert guest.open_lines() == 0


def test_a_cold_move_to_the_same_host_counts_both(world: World) -> None:
    place = Flat(world)
    guest = Guest(place)
    place.world.call("DELETE", f"/resource_providers/{place.hosts['b']}")
    del place.world.names[place.hosts["b"]]
    begun = world.mover()[0].begin(COLD, place.asked(), guest.instance, guest.migration)
    assert guest.state == (place.on("a"), place.on("a"))
    world.mover()[0].revert(begun.move)
    assert guest.state == (place.on("a"), {})


@pytest.mark.parametrize(("room", "disk", "rest"), [(7, 7, 0), (5, 2, 3), (20, 7, 0)])
def test_a_resize_on_a_pool_holds_the_larger_disk_until_it_is_decided(
    world: World, room: int, disk: int, rest: int
) -> None:
    place = NestedOnPool(world, room)
    guest = Guest(place)
    mover, _ = world.mover()
    begun = mover.begin(LIVE, place.asked(root_gb=disk), guest.instance, guest.migration)
    held, kept = guest.state
    assert held["pool"] == {"DISK_GB": disk}
    assert kept.get("pool", {}) == ({"DISK_GB": rest} if rest else {})
    mover.revert(begun.move)
    assert guest.state == (place.on("a"), {})


def test_a_resize_that_the_pool_has_no_room_for_is_refused(world: World) -> None:
    place = NestedOnPool(world, 7)
    guest = Guest(place)
    with pytest.raises(NoValidHost):
        world.mover()[0].begin(LIVE, place.asked(root_gb=8), guest.instance, guest.migration)
    assert guest.state == (place.on("a"), {})


def test_a_named_destination_shares_the_full_pool_too(world: World) -> None:
    place = NestedOnPool(world)
    guest = Guest(place)
    name = f"b-{place.hosts['b']}"
    asked = spec(
        {"root_required": place.trait},
        vcpus=2,
        memory_mb=0,
        root_gb=5,
        force_hosts=frozenset({name}),
    )
    world.mover()[0].begin(LIVE, asked, guest.instance, guest.migration)
    assert guest.state == (place.on("b"), {"a0": {"VCPU": 2}})


def test_a_host_that_does_not_share_the_pool_is_no_destination_without_disk(world: World) -> None:
    place = NestedOnPool(world)
    guest = Guest(place)
    far = world.provider("c", {}, place.trait)
    world.provider("c0", {"VCPU": 4}, "HW_NUMA_ROOT", parent="c")
    place.fill("b")
    with pytest.raises(NoValidHost):
        guest.begin(LIVE)
    assert world.held(guest.migration) == {}
    assert far


def test_a_reverted_move_returns_the_mappings_that_the_caller_knew(world: World) -> None:
    place = Flat(world)
    guest = Guest(place)
    port, root = new_uuid(), place.hosts["a"]
    mover, _ = world.mover()
    begun = mover.begin(
        LIVE, place.asked(), guest.instance, guest.migration, mappings={port: [root]}
    )
    kept = move_of(begun.move.as_dict())
    assert kept == begun.move
    assert mover.revert(kept) == {port: (root,)}


def test_a_move_is_refused_whose_consumers_hold_something_else(world: World) -> None:
    place = Flat(world)
    guest = Guest(place)
    mover, _ = world.mover()
    with pytest.raises(MoveRefused, match="holds nothing that could be moved"):
        mover.begin(LIVE, place.asked(), new_uuid(), guest.migration)
    with pytest.raises(MoveRefused, match="needs the uuid of its migration"):
        mover.begin(LIVE, place.asked(), guest.instance)
    with pytest.raises(MoveRefused, match="an evacuation has none"):
        mover.begin(EVACUATE, place.asked(), guest.instance, guest.migration)
    other = new_uuid()
    place.claimed(other, "b")
    with pytest.raises(MoveRefused, match=f"migration {other} holds allocations already"):
        mover.begin(LIVE, place.asked(), guest.instance, other)
    begun = guest.begin(EVACUATE)
    with pytest.raises(MoveRefused, match="on 2 hosts"):
        guest.begin(EVACUATE)
    mover.source_returned(guest.instance, place.hosts["a"])
    with pytest.raises(MoveRefused, match="does not hold its source"):
        mover.revert(begun.move)


def test_a_confirmed_move_cannot_be_reverted_nor_an_empty_one_confirmed(world: World) -> None:
    place = Flat(world)
    guest = Guest(place)
    mover, _ = world.mover()
    begun = guest.begin(LIVE)
    mover.finish(begun.move)
    with pytest.raises(MoveRefused, match="the move was confirmed"):
        mover.revert(begun.move)
    assert guest.state == (place.on("b"), {})
    begun = Begun(Move(LIVE, new_uuid(), new_uuid(), place.hosts["a"], {}), ())
    with pytest.raises(MoveRefused, match="holds nothing at its destination"):
        mover.finish(begun.move)
    assert guest.open_lines() == 0


def finish(_guest: Guest, mover: Mover, begun: Begun | None) -> None:
    assert begun is not None
    mover.finish(begun.move)


def revert(_guest: Guest, mover: Mover, begun: Begun | None) -> None:
    assert begun is not None
    mover.revert(begun.move)


def come_back(guest: Guest, mover: Mover, _begun: Begun | None) -> None:
    mover.source_returned(guest.instance, guest.place.hosts["a"])


SOURCE, MOVING, MOVED = "source", "moving", "moved"


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize(
    ("kind", "step", "ends"),
    [
        *((kind, None, {SOURCE}) for kind in MoveKind),
        (LIVE, finish, {MOVED}),
        (LIVE, revert, {SOURCE}),
        (EVACUATE, revert, {SOURCE}),
        (EVACUATE, come_back, {MOVED}),
    ],
)
def test_a_failure_at_any_request_leaves_a_legal_state_that_is_led_to_an_end(
    place: Place,
    kind: MoveKind,
    step: Callable[[Guest, Mover, Begun | None], None] | None,
    ends: set[str],
    answered: bool,
) -> None:
    """Placement dies at each request in turn, before or after it did what it was asked."""
    world = place.world
    died, index = True, 0
    while died:
        guest = Guest(place)
        begun = guest.begin(kind) if step else None
        source, moving, moved = states(guest, kind)
        failing = Failing(index, answered)
        mover, _ = world.mover(failing)
        try:
            if step:
                step(guest, mover, begun)
            else:
                guest.begin(kind, mover)
            died = False
        except PlacementUnavailable:
            between = guest.state
            assert between in (source, moving, moved)
            world.mover()[0].recover()
            end = {SOURCE: source, MOVING: moving, MOVED: moved}
            legal = [end[name] for name in ends]
            if step and between == moving:
                # it died before the step had its line in the journal
                legal.append(moving)
            assert guest.state in legal, f"request {index}"
        assert guest.open_lines() == 0
        for consumer in (guest.instance, guest.migration):
            world.call("PUT", f"/allocations/{consumer}", nothing(world, consumer))
        index += 1
    assert index > 3


def nothing(world: World, consumer: str) -> dict[str, object]:
    record = world.call("GET", f"/allocations/{consumer}")
    return {
        "allocations": {},
        "project_id": record.get("project_id", "p"),
        "user_id": record.get("user_id", "u"),
        "consumer_type": record.get("consumer_type", "INSTANCE"),
        "consumer_generation": record.get("consumer_generation"),
    }


def states(guest: Guest, kind: MoveKind) -> tuple[tuple[Held, Held], ...]:
    """What instance and migration hold before a move, in the middle of it and after it."""
    place = guest.place
    here, there = place.on("a"), place.on("b")
    if kind is EVACUATE:
        return (here, {}), ({**here, **there}, {}), (there, {})
    return (here, {}), (there, without(here, place.shared)), (there, {})


def test_a_move_that_another_process_works_on_is_left_to_it(world: World) -> None:
    guest = Guest(Flat(world))
    begun = guest.begin(LIVE)
    journal = Journal(world.journal)
    entry = {"op": "move", "step": "revert", **begun.move.as_dict()}
    with journal.begun(entry):
        world.mover()[0].recover()
        assert guest.state[1] != {}
    world.mover()[0].recover()
    assert guest.state == (guest.place.on("a"), {})
    assert guest.open_lines() == 0


@pytest.mark.parametrize("kind", [LIVE, EVACUATE])
@pytest.mark.parametrize("same", [True, False])
def test_of_two_who_begin_the_same_move_one_does_and_the_other_changes_nothing(
    world: World, kind: MoveKind, same: bool
) -> None:
    place = Flat(world)
    guest = Guest(place)
    other = guest.migration if same else new_uuid()
    mover, recorded = world.mover()
    overtaken: list[Begun] = []

    def before(method: str, path: str, _body: object) -> None:
        if method == "POST" and path == "/allocations" and not overtaken:
            overtaken.append(None)  # type: ignore[arg-type]
            overtaken[0] = guest.begin(kind)

    recorded.before = before
    if kind is EVACUATE or same:
        # both want the same, and there is nothing to tell them by: both are told that it is so
        assert guest.begin(kind, mover).move == overtaken[0].move
    else:
        with pytest.raises(AllocationMoveFailed):
            mover.begin(kind, place.asked(), guest.instance, other)
        assert world.held(other) == {}
    source, moving, moved = states(guest, kind)
    assert guest.state == moving
    assert guest.open_lines() == 0
    world.mover()[0].recover()
    assert guest.state == moving
    world.mover()[0].revert(overtaken[0].move)
    assert guest.state == source
    assert moved


@pytest.mark.parametrize("kind", [LIVE, EVACUATE])
def test_a_begin_that_died_is_not_undone_when_somebody_else_has_gone_on(
    world: World, kind: MoveKind
) -> None:
    place = Flat(world)
    guest = Guest(place)
    mover, _ = world.mover(Failing(0))
    journal = Journal(world.journal)
    dead = mover_that_prepared(guest, kind)
    journal.open({"op": "move", "step": "claim", **dead.as_dict()})
    other = Journal(world.journal.with_name("journal of another host"))
    elsewhere = Mover(*parts_with(world, other))
    migration = "" if kind is EVACUATE else new_uuid()
    begun = elsewhere.begin(kind, place.asked(), guest.instance, migration)
    world.mover()[0].recover()
    assert journal.entries() == {}
    assert world.held(guest.instance) == (states(guest, kind)[1][0])
    elsewhere.revert(begun.move)
    assert world.held(guest.instance) == place.on("a")
    assert mover


def mover_that_prepared(guest: Guest, kind: MoveKind) -> Move:
    """What a process noted that died before it wrote anything: it would have gone elsewhere."""
    source = {guest.place.hosts["a"]: {"VCPU": 2}}
    there = {guest.place.hosts["b"]: {"VCPU": 1}}
    migration = "" if kind is EVACUATE else guest.migration
    return Move(
        kind,
        guest.instance,
        migration,
        guest.place.hosts["a"],
        source,
        destination={**source, **there} if kind is EVACUATE else there,
        left={} if kind is EVACUATE else source,
    )


def parts_with(world: World, journal: Journal) -> tuple[Placement, Scheduler, Journal]:
    mover = world.mover()[0]
    return mover._placement, mover._scheduler, journal


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PipeTransport]:
    try:
        one = Reference(tmp_path_factory.mktemp("published"))
    except ReferenceMissing as missing:
        pytest.skip(f"no published placement to test against: {missing}")
    yield PipeTransport(one)
    one.close()


@pytest.mark.parametrize("kind_of_place", KINDS)
def test_the_published_placement_counts_moves_just_so(
    published: PipeTransport, tmp_path: Path, kind_of_place: Callable[[World], Place]
) -> None:
    world = World(published, tmp_path / "journal")
    guest = Guest(kind_of_place(world))
    mover, _ = world.mover()
    for kind in (LIVE, COLD):
        source, moving, _ = states(guest, kind)
        begun = guest.begin(kind)
        assert guest.state == moving
        mover.revert(begun.move)
        assert guest.state == source
    _, _, moved = states(guest, LIVE)
    mover.finish(guest.begin(LIVE).move)
    assert guest.state == moved

    other = Guest(kind_of_place(World(published, tmp_path / "journal")))
    source, moving, moved = states(other, EVACUATE)
    begun = other.begin(EVACUATE)
    assert other.state == moving
    mover.revert(begun.move)
    assert other.state == source
    other.begin(EVACUATE)
    mover.source_returned(other.instance, other.place.hosts["a"])
    assert other.state == moved
