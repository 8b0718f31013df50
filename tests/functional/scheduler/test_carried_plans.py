"""Plans of moves that are carried out: cut off at any point, refused, or overtaken by others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from compute_agent.errors import AllocationMoveFailed, PlacementUnavailable
from compute_agent.placement.candidate_answers import PlannedMove
from compute_agent.scheduler.claiming.journal import Journal
from compute_agent.scheduler.errors import MoveRefused
from compute_agent.scheduler.moves.carrying import CarriedPlan
from compute_agent.scheduler.placement.candidates import Candidate
from tests.fixtures.allocations import new_uuid
from tests.functional.scheduler.moving import FailingTransport, Held, World, together

APART, TOGETHER = False, True


class CutOffError(Exception):
    """Stands for the end of the process."""


@dataclass
class Plan:
    """Two guests, of which the second takes the place of the first, on hosts of 4 and 3 VCPU.

    :ivar room: VCPU of the first host; with 5 the second need not wait for the first.
    :ivar at: where each guest really runs.
    :ivar asked_for: the guests that the command was asked to move, in order.
    :ivar statuses: what the command returns for a guest, once.
    """

    world: World
    path: Path
    is_exchange: bool
    room: int = 4
    at: dict[str, str] = field(default_factory=dict)
    asked_for: list[str] = field(default_factory=list)
    statuses: dict[str, int] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        world = self.world
        self.names = {
            name: self._host(name, n) for name, n in (("a", self.room), ("b", 3), ("c", 3))
        }
        self.first, self.second = new_uuid(), new_uuid()
        # without an exchange the second comes from elsewhere, and waits until the first is gone
        self.ends = {
            self.first: (3, "a", "b"),
            self.second: (2, "b" if self.is_exchange else "c", "a"),
        }
        for guest, (vcpus, source, _place) in self.ends.items():
            world.claim(guest, {self.names[source]: {"VCPU": vcpus}})
            self.at[guest] = source
        sources = {guest: self._on(guest, 1) for guest in self.ends} if self.is_exchange else None
        self.written = CarriedPlan.write(self.path, [self._move(g) for g in self.ends], sources)

    def _host(self, name: str, vcpus: int) -> str:
        return self.world.provider(name, {"VCPU": vcpus}, "COMPUTE_NODE")

    def _on(self, guest: str, end: int) -> dict[str, dict[str, int]]:
        return {self.names[str(self.ends[guest][end])]: {"VCPU": int(self.ends[guest][0])}}

    def _move(self, guest: str) -> PlannedMove:
        _vcpus, source, place = self.ends[guest]
        move: Any = {
            "consumer": guest,
            "from": {"root": self.names[source], "name": source},
            "to": {"root": self.names[place], "name": place},
            "allocations": {u: {"resources": n} for u, n in self._on(guest, 2).items()},
            "mappings": {"": [self.names[place]]},
        }
        return move

    def holding(self, guest: str, *, moved: bool) -> Held:
        vcpus, source, place = self.ends[guest]
        return {place if moved else source: {"VCPU": vcpus}}

    def held(self) -> list[Held]:
        return [self.world.held(guest) for guest in self.ends]

    def move_guests(self, moves: Sequence[Mapping[str, Any]]) -> int:
        """Move guests as the command does; both places must be held for them meanwhile."""
        used = self.world.used()
        for move in moves:
            guest = move["consumer"]
            self.asked_for.append(guest)
            assert self.world.held(guest) == self.holding(guest, moved=True)
            vcpus, *hosts = self.ends[guest]
            assert all(used[host]["VCPU"] >= vcpus for host in hosts)
        status = max((self.statuses.pop(move["consumer"], 0) for move in moves), default=0)
        if not status:
            self.at |= {move["consumer"]: self.ends[move["consumer"]][2] for move in moves}
        return status

    def carry_out(
        self,
        failing: FailingTransport | None = None,
        say: Callable[[str], None] | None = None,
        at_once: int = 1,
    ) -> bool:
        mover, _ = self.world.mover(failing)
        plan = CarriedPlan(self.path)
        say = say or self.said.append
        return plan.carry_out(mover._placement, mover, self.move_guests, say, at_once)

    def check_moved(self) -> None:
        """Check that each guest runs, and holds, its place, and nothing else is held."""
        moved = [self.holding(guest, moved=True) for guest in self.ends]
        assert self.held() == moved
        assert self.world.used() == together(*moved)
        assert self.at == {guest: place for guest, (_n, _source, place) in self.ends.items()}
        assert not self.path.exists()
        assert Journal(self.world.journal).entries() == {}


@pytest.fixture
def new_plan(world: World, tmp_path: Path) -> Callable[[bool], Plan]:
    def make(is_exchange: bool) -> Plan:
        world.names.clear()
        return Plan(world, tmp_path / "plan", is_exchange)

    return make


@pytest.mark.parametrize(
    ("is_exchange", "at_once", "answered"),
    [(APART, 1, False), (APART, 2, True), (TOGETHER, 1, False), (TOGETHER, 1, True)],
)
def test_a_plan_that_placement_cut_off_at_any_request_goes_on_to_its_end(
    new_plan: Callable[[bool], Plan], is_exchange: bool, at_once: int, answered: bool
) -> None:
    died, index = True, 0
    while died:
        plan = new_plan(is_exchange)
        try:
            assert plan.carry_out(FailingTransport(index, answered), at_once=at_once)
            died = False
        except PlacementUnavailable:
            assert plan.carry_out(at_once=at_once), f"request {index}"
        plan.check_moved()
        index += 1
    assert index > 5


@pytest.mark.parametrize("is_exchange", [APART, TOGETHER])
def test_a_plan_that_ended_with_its_process_goes_on_to_its_end(
    new_plan: Callable[[bool], Plan], is_exchange: bool
) -> None:
    """It ends after each line in turn, which each follows what was done and recorded."""
    died, index = True, 0
    while died:
        plan = new_plan(is_exchange)

        def say(text: str, lines: list[str] = plan.said, last: int = index) -> None:
            lines.append(text)
            if len(lines) > last:
                raise CutOffError

        try:
            assert plan.carry_out(say=say)
            died = False
        except CutOffError:
            recorded = [line.split(": ")[0] for line in plan.said if line.endswith("done")]
            assert plan.carry_out()
            again = plan.said[index + 1 :]
            # what was recorded as done is not done again
            assert not [line for line in again if line.split(": ")[0] in recorded]
        plan.check_moved()
        index += 1
    names = [f"move {number} of 2, {guest}" for number, guest in enumerate(plan.ends, 1)]
    moving = ["all 2 moves together: moving"] if is_exchange else []
    for name in names:
        moving += [f"{name}: done"] if is_exchange else [f"{name}: moving", f"{name}: done"]
    assert plan.said == moving


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize(("is_exchange", "at_once"), [(APART, 1), (APART, 2), (TOGETHER, 1)])
def test_a_guest_whose_command_fails_holds_what_it_held_and_is_moved_by_the_next_try(
    new_plan: Callable[[bool], Plan], is_exchange: bool, at_once: int, number: int
) -> None:
    plan = new_plan(is_exchange)
    guests = list(plan.ends)
    plan.statuses = {guests[number]: 3}
    assert not plan.carry_out(at_once=at_once)
    are_moved = [not is_exchange and at < number for at in range(2)]
    expected = [plan.holding(guest, moved=are_moved[at]) for at, guest in enumerate(guests)]
    assert plan.held() == expected
    assert plan.world.used() == together(*expected)
    assert "failed with status 3" in plan.said[-1]
    assert plan.carry_out(at_once=at_once)
    plan.check_moved()
    # one that was moved is not asked for again
    assert plan.asked_for.count(guests[0]) == 1 + (is_exchange or number == 0)


@pytest.mark.parametrize("is_exchange", [APART, TOGETHER])
def test_a_guest_that_holds_nothing_any_more_is_not_moved(
    new_plan: Callable[[bool], Plan], is_exchange: bool
) -> None:
    plan = new_plan(is_exchange)
    mover, _ = plan.world.mover()
    mover._placement.release(plan.first)
    with pytest.raises(MoveRefused) as refused:
        plan.carry_out()
    assert plan.first in str(refused.value)
    assert plan.second not in str(refused.value)
    assert plan.asked_for == []
    assert plan.held() == [{}, plan.holding(plan.second, moved=False)]


def test_no_more_moves_begin_than_are_made_at_once(world: World, tmp_path: Path) -> None:
    plan = Plan(world, tmp_path / "plan", APART, room=5)
    assert plan.carry_out(at_once=1)
    assert [line.rpartition(" ")[2] for line in plan.said] == ["moving", "done"] * 2
    plan.check_moved()


def test_one_that_fails_and_one_that_is_made_beside_it_are_no_plan_that_is_done(
    world: World, tmp_path: Path
) -> None:
    plan = Plan(world, tmp_path / "plan", APART, room=5)
    plan.statuses = {plan.first: 3}
    first_has_ended, move_guests = threading.Event(), plan.move_guests

    def one_after_the_other(moves: Sequence[Mapping[str, Any]]) -> int:
        if moves[0]["consumer"] == plan.second:
            assert first_has_ended.wait(60)
        return move_guests(moves)

    def say(text: str) -> None:
        if "failed" in text:
            first_has_ended.set()

    plan.move_guests = one_after_the_other  # type: ignore[method-assign]
    assert not plan.carry_out(say=say, at_once=2)
    assert plan.held() == [
        plan.holding(plan.first, moved=False),
        plan.holding(plan.second, moved=True),
    ]
    assert plan.carry_out()
    plan.check_moved()


def test_a_move_that_was_cut_off_ends_also_where_there_is_no_room_for_one_before_it(
    world: World, tmp_path: Path
) -> None:
    """The first failed while the second was made, and then others took its place."""
    plan = Plan(world, tmp_path / "plan", APART, room=5)
    entry = plan.written._progress.moves[1]
    places = {plan.names["a"]: {"VCPU": 2}}
    candidate = Candidate(plan.names["a"], places, {"": (plan.names["a"],)})
    world.mover()[0].begin_at(plan.second, entry["migration"], candidate)
    world.claim(new_uuid(), {plan.names["b"]: {"VCPU": 1}})
    with pytest.raises(AllocationMoveFailed):
        plan.carry_out()
    assert plan.asked_for == [plan.second]
    assert plan.held() == [
        plan.holding(plan.first, moved=False),
        plan.holding(plan.second, moved=True),
    ]
    assert world.held(entry["migration"]) == {}


def test_guests_that_others_changed_while_they_were_moved_together_stay_as_they_are(
    new_plan: Callable[[bool], Plan],
) -> None:
    """The places that they left are taken, so they cannot get them back; both are told of it."""
    plan = new_plan(TOGETHER)
    plan.statuses = {plan.first: 3}
    keeper = plan.written._progress.keeper
    move_guests = plan.move_guests

    def taken_meanwhile(moves: Sequence[Mapping[str, Any]]) -> int:
        status = move_guests(moves)
        assert plan.world.type_of(keeper) == "MIGRATION"
        assert plan.world.held(keeper) == {"a": {"VCPU": 1}}
        plan.world.mover()[0]._placement.release(keeper)
        plan.world.claim(new_uuid(), {plan.names["a"]: {"VCPU": 2}})
        return status

    plan.move_guests = taken_meanwhile  # type: ignore[method-assign]
    assert not plan.carry_out()
    assert "failed with status 3" in plan.said[-1]
    assert plan.said[-1].endswith("Repeat it.")
    assert plan.held() == [plan.holding(guest, moved=True) for guest in plan.ends]
    assert plan.path.exists()
