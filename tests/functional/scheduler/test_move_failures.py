"""Moves that are cut off or raced: what they leave, and how others lead them to an end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from compute_agent.errors import AllocationMoveFailed, PlacementUnavailable
from compute_agent.scheduler.claiming.journal import Journal
from compute_agent.scheduler.errors import MoveRefused
from compute_agent.scheduler.manager import Scheduler
from compute_agent.scheduler.moves.move import Move, MoveKind
from compute_agent.scheduler.moves.mover import Mover, MoveStart
from compute_agent.scheduler.moves.steps import MoveStep, Step, carry_out
from compute_agent.scheduler.placement.client import PlacementClient
from tests.fixtures.allocations import new_uuid
from tests.functional.scheduler.guests import EVACUATE, LIVE, Flat, Guest, Place, states
from tests.functional.scheduler.moving import FailingTransport, World


def finish(_guest: Guest, mover: Mover, begun: MoveStart | None) -> None:
    assert begun is not None
    mover.finish(begun.move)


def revert(_guest: Guest, mover: Mover, begun: MoveStart | None) -> None:
    assert begun is not None
    mover.revert(begun.move)


def come_back(guest: Guest, mover: Mover, _begun: MoveStart | None) -> None:
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
    step: Callable[[Guest, Mover, MoveStart | None], None] | None,
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
        failing = FailingTransport(index, answered)
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


def test_a_move_that_another_process_works_on_is_left_to_it(world: World) -> None:
    guest = Guest(Flat(world))
    begun = guest.begin(LIVE)
    journal = Journal(world.journal)
    with journal.begin(MoveStep.of(begun.move, "revert")):
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
    overtaken: list[MoveStart] = []

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
    source, moving, _moved = states(guest, kind)
    assert guest.state == moving
    assert guest.open_lines() == 0
    world.mover()[0].recover()
    assert guest.state == moving
    world.mover()[0].revert(overtaken[0].move)
    assert guest.state == source


@pytest.mark.parametrize("kind", [LIVE, EVACUATE])
def test_a_begin_that_died_is_not_undone_when_somebody_else_has_gone_on(
    world: World, kind: MoveKind
) -> None:
    place = Flat(world)
    guest = Guest(place)
    journal = Journal(world.journal)
    dead = mover_that_prepared(guest, kind)
    journal.open(MoveStep.of(dead, "claim"))
    other = Journal(world.journal.with_name("journal of another host"))
    elsewhere = Mover(*parts_with(world, other))
    migration = "" if kind is EVACUATE else new_uuid()
    begun = elsewhere.begin(kind, place.asked(), guest.instance, migration)
    world.mover()[0].recover()
    assert journal.entries() == {}
    assert world.held(guest.instance) == (states(guest, kind)[1][0])
    elsewhere.revert(begun.move)
    assert world.held(guest.instance) == place.on("a")


@pytest.mark.parametrize("step", ["confirm", "revert", "return"])
def test_a_step_is_not_completed_where_others_have_written_since(world: World, step: Step) -> None:
    guest = Guest(Flat(world))
    move = guest.begin(LIVE).move
    placement = world.mover()[0]._placement
    before = placement.holding(guest.instance).generation - 1
    with pytest.raises(MoveRefused, match="others have changed"):
        carry_out(placement, move, step, before)
    assert guest.state == states(guest, LIVE)[1]


def test_a_begin_is_undone_where_nobody_has_gone_on_from_it(world: World) -> None:
    guest = Guest(Flat(world))
    source, moving, moved = states(guest, LIVE)
    move = guest.begin(LIVE).move
    mover, _ = world.mover()
    placement = mover._placement
    begun = placement.holding(guest.instance).generation
    mover.acknowledge(move)
    with pytest.raises(MoveRefused, match="another scheduler continues"):
        carry_out(placement, move, "claim", begun - 1)
    assert guest.state == moving
    carry_out(placement, move, "claim", begun)
    assert guest.state == source
    with pytest.raises(MoveRefused, match="does not hold the destination any more"):
        mover.acknowledge(move)
    # a later move ends in the same place, without what the first one wrote
    mover.finish(guest.begin(LIVE).move)
    with pytest.raises(MoveRefused, match="what this move never wrote"):
        carry_out(placement, move, "claim")
    assert guest.state == moved


@pytest.mark.parametrize("step", [None, finish, revert, come_back])
def test_every_step_completes_first_what_the_journal_has_of_others(
    world: World, step: Callable[[Guest, Mover, MoveStart | None], None] | None
) -> None:
    place = Flat(world)
    dead, guest = Guest(place), Guest(place)
    kind = EVACUATE if step is come_back else LIVE
    begun = guest.begin(kind) if step else None
    Journal(world.journal).open(MoveStep.of(dead.begin(LIVE).move, "revert"))
    if step:
        step(guest, world.mover()[0], begun)
    else:
        guest.begin(kind)
    held = world.held(dead.instance), world.held(dead.migration)
    assert (held, dead.open_lines()) == (states(dead, LIVE)[0], 0)


def test_a_revert_that_the_source_has_no_room_for_any_more_waits_in_the_journal(
    world: World,
) -> None:
    guest = Guest(Flat(world))
    source, moving, _moved = states(guest, LIVE)
    move = guest.begin(LIVE).move
    path = f"/resource_providers/{guest.place.hosts['a']}/inventories"
    record = world.call("GET", path)
    record["inventories"]["VCPU"]["max_unit"] = 1
    record = world.call("PUT", path, record)
    with pytest.raises(AllocationMoveFailed, match="VCPU"):
        world.mover()[0].revert(move)
    world.mover()[0].recover()
    assert (guest.state, guest.open_lines()) == (moving, 1)
    record["inventories"]["VCPU"]["max_unit"] = 4
    world.call("PUT", path, record)
    world.mover()[0].recover()
    assert (guest.state, guest.open_lines()) == (source, 0)


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
        mappings={},
        destination_root="",
        destination={**source, **there} if kind is EVACUATE else there,
        left_amounts={} if kind is EVACUATE else source,
        project_id="",
        user_id="",
    )


def parts_with(world: World, journal: Journal) -> tuple[PlacementClient, Scheduler, Journal]:
    mover = world.mover()[0]
    return mover._placement, mover._scheduler, journal
