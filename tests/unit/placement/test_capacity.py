"""The questions how much more fits, to placements of several ages."""

import json
from typing import Any

import pytest

from compute_agent import errors
from compute_agent.placement.candidates import Candidates, Capacity, Fragmentation
from compute_agent.placement.connection import Connection
from compute_agent.placement.transports.transport import Request, Response, make_response

ROOT = "6a2cd4b4-5c46-4f0a-a1a3-8e0a9a5ec0a0"
COUNT: dict[str, Any] = {
    "at_least": 3,
    "at_most": 4,
    "exact": False,
    "trees": [{"root": ROOT, "name": None, "at_least": 3, "at_most": 4}],
    "limited_by": {"VCPU": 1},
}
USE = {"capacity": 10, "used": 4, "free": 6, "largest_free": 5, "stranded": 1}
SHAPE = {"resources": {"VCPU": 2}, "at_least": 2, "at_most": 2, "together": 3, "ratio": 0.667}
REPORT: dict[str, Any] = {"resource_classes": {"VCPU": USE}, "shapes": [SHAPE]}


class Placement:
    """Announces one version of the extensions, and gives every question one answer."""

    def __init__(self, extensions: str, answer: object = None) -> None:
        self.document = {
            "versions": [{"min_version": "1.0", "max_version": "1.39"}],
            "extensions": [{"id": "placement-ext", "max_version": extensions}],
        }
        self.answer = answer
        self.asked: list[Request] = []

    def send(self, request: Request) -> Response:
        if request.path == "/":
            return make_response(200, [], json.dumps(self.document))
        self.asked.append(request)
        return make_response(200, [], json.dumps(self.answer))


def candidates(placement: Placement) -> Candidates:
    return Candidates(Connection(placement, use_extensions=True))


def test_a_placement_of_the_first_extensions_is_not_asked():
    placement = Placement("1.0")
    assert candidates(placement).capacity([("resources", "VCPU:1")]) is None
    assert candidates(placement).fragmentation([{"VCPU": 1}]) is None
    assert not placement.asked


def test_a_count_of_claims_is_asked_for_with_the_query_of_candidates():
    placement = Placement("1.1", COUNT | {"from_the_future": 1})
    query = [("resources", "VCPU:1"), ("limit", "5")]
    assert candidates(placement).capacity(query) == Capacity(**COUNT)
    assert [request.path for request in placement.asked] == ["/capacity?resources=VCPU:1&limit=5"]
    assert [request.extensions for request in placement.asked] == [(1, 1)]


def test_each_shape_is_a_parameter():
    placement = Placement("1.1", REPORT)
    report = candidates(placement).fragmentation([{"VCPU": 2, "DISK_GB": 1}, {"VCPU": 1}], [ROOT])
    assert report == Fragmentation(**REPORT)
    assert placement.asked[0].path == (
        f"/fragmentation?resources=VCPU:2,DISK_GB:1&resources=VCPU:1&member_of={ROOT}"
    )


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"at_least": "3"}, 'at_least is "3"'),
        ({"exact": 1}, "exact is 1"),
        ({"trees": [{"root": ROOT, "at_least": 1, "at_most": 1}]}, "trees[0].name is missing"),
        ({"limited_by": {"VCPU": 0.5}}, "limited_by.VCPU is 0.5"),
    ],
)
def test_an_answer_of_another_shape_is_refused_with_its_place(wrong: object, words: str):
    with pytest.raises(errors.AllocationCandidateRetrievalFailed) as caught:
        candidates(Placement("1.1", COUNT | wrong)).capacity([("resources", "VCPU:1")])
    assert words in str(caught.value)
