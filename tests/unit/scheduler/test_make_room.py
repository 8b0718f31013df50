"""Plans of placement for the shapes of a request: the one that is taken, and what is proved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import pytest

from compute_agent.scheduler.explanation import ExplainedRequest
from compute_agent.scheduler.moves.room import Room, find_room
from compute_agent.scheduler.outcomes import Causes, QueryCause
from tests.unit.scheduler.specs import spec

Answer = tuple[Sequence[tuple[str, int, int]], bool]
"""Plans, each with the host that it makes room on, its moves and its memory, and if it is best."""


def plan(host: str, moves: int, memory_mb: int) -> dict[str, Any]:
    root = {"root": host, "name": host}
    move = {"consumer": "c", "to": root, "from": root, "allocations": {}, "mappings": {}}
    return {"moves": [move] * moves, "memory_mb": memory_mb, "places": [{"to": root}]}


class Fleet:
    """Placement with an answer for each shape, and a search that finds the hosts given."""

    def __init__(self, answers: Mapping[str, Answer], suitable: Sequence[str]) -> None:
        self.answers = answers
        self.suitable = suitable
        self.questions: list[Mapping[str, Any]] = []
        self.is_supposing = False

    def make_room(self, question: Mapping[str, Any]) -> Any:
        self.questions.append({**question, "avoid": list(question["avoid"])})
        plans, is_proved = self.answers[question["request"]]
        avoided = question["avoid"]
        best_plans = [plan(*p) for p in plans if p[0] not in avoided][:1]
        return {"plans": best_plans, "proved": is_proved}

    def supposing(self, _changes: object) -> Any:
        self.is_supposing = True
        return nullcontext()

    def explain(self, _spec: object) -> ExplainedRequest:
        queries = tuple(QueryCause(name, name, "1.39", 0, False) for name in self.answers)
        hosts: Any = [Host(name) for name in self.suitable] if self.is_supposing else ()
        return ExplainedRequest(Causes(queries), tuple(hosts))


class Host:
    def __init__(self, name: str) -> None:
        self.uuid = self.name = name


def room_of(fleet: Any, silent: Sequence[str] = ()) -> Room:
    bounds = {"leave_alone": {"projects": ["p"]}, "max_moves": 3}
    return find_room(fleet, fleet, spec({}), bounds, silent)


@pytest.mark.parametrize(
    ("answers", "host", "is_proved"),
    [
        # the fewest moves, and of as many the least memory
        ({"x": ([("a", 2, 1)], True), "y": ([("b", 1, 9)], True)}, "b", True),
        ({"x": ([("a", 1, 9)], True), "y": ([("b", 1, 1)], True)}, "b", True),
        ({"x": ([("a", 1, 1), ("b", 2, 0)], True)}, "a", True),
        ({"x": ([("a", 1, 1)], False), "y": ([], True)}, "a", False),
        # a host that fits as it is, but for filters, hides what moves would give there
        ({"x": ([("z", 0, 0)], True), "y": ([("b", 2, 1)], True)}, "b", False),
        ({"x": ([("z", 0, 0)], True), "y": ([("b", 1, 1)], True)}, "b", True),
        ({"x": ([("z", 0, 0)], True), "y": ([], True)}, None, False),
        ({"x": ([("z", 0, 0), ("b", 2, 1)], True)}, "b", False),
        ({"x": ([], True), "y": ([], True)}, None, True),
        ({"x": ([], False), "y": ([], True)}, None, False),
        # those whose filters refuse are not asked about again
        ({"x": ([("no", 1, 1), ("b", 1, 2)], True)}, "b", True),
        ({"x": ([("no", 1, 1)], True)}, None, True),
    ],
)
def test_the_plan_with_the_fewest_moves_is_taken_and_known_for_the_best_only_where_it_is(
    answers: Mapping[str, Answer], host: str | None, is_proved: bool
) -> None:
    fleet = Fleet(answers, ["a", "b"])
    room = room_of(fleet)
    assert (room.plan and room.plan["places"][0]["to"]["root"]) == host
    assert room.is_proved == is_proved
    is_refused = any(name == "no" for plans, _ in answers.values() for name, *_ in plans)
    assert list(room.refused or {}) == ["no"] * is_refused


def test_silent_hosts_are_left_alone_beside_what_the_operator_named() -> None:
    fleet = Fleet({"x": ([], True)}, [])
    room_of(fleet, ["s2", "s1"])
    [question] = fleet.questions
    assert question["leave_alone"] == {"projects": ["p"], "trees": ["s1", "s2"]}
    assert question["max_moves"] == 3
