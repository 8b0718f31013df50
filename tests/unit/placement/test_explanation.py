"""The question why there are no candidates, to placements of several ages."""

import json
from typing import Any

import pytest

from compute_agent import errors
from compute_agent.placement.candidate_answers import Explanation
from compute_agent.placement.candidates import Candidates
from compute_agent.placement.connection import Connection
from compute_agent.placement.transports.transport import Request, Response, make_response

ROOT = "6a2cd4b4-5c46-4f0a-a1a3-8e0a9a5ec0a0"
LOWERED = {"group": "", "resource_class": "VCPU", "from": 16, "to": 12}
CLOSEST = {"changes": [LOWERED], "trees": 3, "example": ROOT}
ANSWER = {
    "trees": 1,
    "steps": [{"group": "", "filter": "resources VCPU:16", "providers_left": 0}],
    "trees_left": 0,
    "trees_failed": [],
    "sentences": ["1 trees of providers."],
    "closest": [CLOSEST],
    "complete": True,
}
PLAN = {"moves": [], "places": [], "memory_mb": 0, "whole": True, "stuck": []}


class Placement:
    """Announces one version of the extensions, and gives every question one answer."""

    def __init__(self, extensions: str | None, answer: object = None) -> None:
        self.document: dict[str, Any] = {
            "versions": [{"min_version": "1.0", "max_version": "1.39"}]
        }
        if extensions is not None:
            self.document["extensions"] = [{"id": "placement-ext", "max_version": extensions}]
        self.answer = answer
        self.asked: list[Request] = []

    def send(self, request: Request) -> Response:
        if request.path == "/":
            return make_response(200, [], json.dumps(self.document))
        self.asked.append(request)
        return make_response(200, [], json.dumps(self.answer))


def explained(placement: Placement) -> Explanation | None:
    candidates = Candidates(Connection(placement, use_extensions=True))
    return candidates.explain([("resources", "VCPU:16"), ("limit", "1000")])


@pytest.mark.parametrize("offered", [None, "1.0"])
def test_a_placement_without_these_extensions_is_not_asked(offered):
    placement = Placement(offered)
    assert explained(placement) is None
    assert not placement.asked


def test_placement_is_asked_without_the_limit_of_the_search():
    placement = Placement("1.1", ANSWER)
    assert explained(placement) == ANSWER
    (request,) = placement.asked
    assert request.extensions == (1, 1)
    assert request.path == "/candidate_explanation?resources=VCPU:16&limit=5"


def test_what_a_newer_placement_adds_is_there_to_be_printed():
    answer = ANSWER | {"closest": [CLOSEST | {"cost": [1]}], "hints": {"a": None}}
    assert explained(Placement("1.1", answer)) == answer
    room = {"plans": [{**PLAN, "cost": 1}], "proved": True, "hints": []}
    candidates = Candidates(Connection(Placement("1.1", room), use_extensions=True))
    assert candidates.make_room({}) == room


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"closest": None}, "closest is null"),
        ({"closest": [{"changes": [LOWERED], "trees": 3}]}, "closest[0].example is missing"),
        ({"closest": [CLOSEST | {"changes": [{"to": 2**63}]}]}, "closest[0].changes[0].to is 922"),
        ({"closest": [CLOSEST | {"changes": [{"to": {}}]}]}, "closest[0].changes[0].to is {}"),
        ({"sentences": "none"}, 'sentences is "none"'),
    ],
)
def test_an_answer_of_another_shape_is_refused_with_its_place(wrong: object, words: str):
    with pytest.raises(errors.AllocationCandidateRetrievalFailed) as raised:
        explained(Placement("1.1", ANSWER | wrong))
    assert words in str(raised.value)


@pytest.mark.parametrize("count", [0, 2])
def test_as_many_questions_about_a_supposed_fleet_have_to_be_answered_as_were_asked(count: int):
    lists = [{"allocation_requests": [], "provider_summaries": {}}] * count
    for answers, ask in ((lists, "candidates_if"), ([ANSWER] * count, "explanations_if")):
        placement = Placement("1.1", {"answers": answers})
        candidates = Candidates(Connection(placement, use_extensions=True))
        query = "resources=VCPU:1"
        with pytest.raises(errors.AllocationCandidateRetrievalFailed, match=r"not 1 answer\(s\)"):
            getattr(candidates, ask)([], [query] if ask == "explanations_if" else query)
