"""Claims with alternatives as the client sends them, and what it makes of the answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from compute_agent import errors
from compute_agent.placement.allocations.allocations import AlreadyClaimed
from compute_agent.placement.allocations.alternatives import AlternativeAnswer, LostAlternative
from compute_agent.placement.api import PlacementApi
from compute_agent.placement.connection import Connection
from compute_agent.placement.transports.transport import Request, Response

CANDIDATES = [
    {"allocations": {host: {"resources": {"VCPU": 1}}}, "mappings": {"": [host]}} for host in "ab"
]
VERSIONS = {
    "versions": [{"min_version": "1.0", "max_version": "1.39"}],
    "extensions": [{"id": "placement-ext", "min_version": "1.0", "max_version": "1.1"}],
}


def answer(status: int, body: Any) -> Response:
    return Response(status, {}, body, json.dumps(body))


def refusal(code: str, detail: str = "", **more: Any) -> Response:
    return answer(409, {"errors": [{"status": 409, "detail": detail, "code": code, **more}]})


def consumer(holding: Any) -> Response:
    body = {"allocations": holding}
    owned = {"project_id": "p", "user_id": "u", "consumer_generation": 1, "consumer_type": "X"}
    return answer(200, body | owned if holding else body)


CONFLICT = refusal(
    "placement.concurrent_update", "consumer generation conflict - expected 1 but got null"
)


class Scripted:
    """A transport that gives these answers, one after the other."""

    def __init__(self, *answers: Response) -> None:
        self._answers: Iterator[Response] = iter([answer(200, VERSIONS), *answers])
        self.requests: list[Request] = []

    def send(self, request: Request) -> Response:
        self.requests.append(request)
        return next(self._answers)


def claim(*answers: Response) -> AlternativeAnswer | AlreadyClaimed:
    api = PlacementApi(Connection(Scripted(*answers), use_extensions=True))
    assert api.alternatives.available
    return api.alternatives.claim_first("c", CANDIDATES, "p", "u", "INSTANCE")


def test_all_candidates_are_in_one_request_for_a_new_consumer() -> None:
    transport = Scripted(answer(200, {"chosen": 0, "lost": []}))
    api = PlacementApi(Connection(transport, use_extensions=True))
    assert api.alternatives.claim_first("c", CANDIDATES, "p", "u", "INSTANCE") == AlternativeAnswer(
        0, ()
    )
    _, request = transport.requests
    assert (request.method, request.path, request.microversion, request.extensions) == (
        "POST",
        "/claims",
        (1, 39),
        (1, 1),
    )
    assert request.json == {
        "consumer_uuid": "c",
        "project_id": "p",
        "user_id": "u",
        "consumer_type": "INSTANCE",
        "consumer_generation": None,
        "candidates": CANDIDATES,
    }


def test_what_was_lost_on_the_way_is_told() -> None:
    short = {"candidate": 0, "provider": "a", "resource_class": "VCPU", "asked": 1, "free": 0}
    assert claim(answer(200, {"chosen": 1, "lost": [short]})) == AlternativeAnswer(
        1, (LostAlternative(0, "a", "VCPU", "1 asked, 0 free"),)
    )
    gone = {"candidate": 1, "provider": "b", "reason": "There is no b."}
    assert claim(refusal("placement.no_candidate_left", lost=[short, gone])) == AlternativeAnswer(
        None,
        (
            LostAlternative(0, "a", "VCPU", "1 asked, 0 free"),
            LostAlternative(1, "b", "", "There is no b."),
        ),
    )


def test_a_consumer_that_holds_one_of_the_candidates_was_claimed_by_an_earlier_try() -> None:
    held = {"b": {"resources": {"VCPU": 1}, "generation": 3}}
    assert claim(CONFLICT, consumer(held)) == AlternativeAnswer(1, ())


def test_a_consumer_that_holds_something_else_is_not_ours() -> None:
    other = claim(CONFLICT, consumer({"b": {"resources": {"VCPU": 2}}}))
    assert isinstance(other, AlreadyClaimed)


def test_a_consumer_that_is_gone_when_it_is_read_is_claimed_once_more() -> None:
    won = answer(200, {"chosen": 0, "lost": []})
    assert claim(CONFLICT, consumer({}), won) == AlternativeAnswer(0, ())
    with pytest.raises(errors.AllocationUpdateFailed):
        claim(CONFLICT, consumer({}), CONFLICT, consumer({}))


@pytest.mark.parametrize(
    "malformed",
    [
        answer(200, {"chosen": 2, "lost": []}),
        answer(200, {"chosen": -1, "lost": []}),
        answer(200, {"chosen": 0}),
        answer(200, {"chosen": 1, "lost": [{"candidate": 7, "provider": "a", "reason": "x"}]}),
        answer(200, {"chosen": 1, "lost": [{"candidate": 0, "provider": "a"}]}),
        refusal("placement.no_candidate_left"),
        refusal("placement.no_candidate_left", lost=[]),
    ],
)
def test_an_answer_that_cannot_be_understood_leaves_open_whether_something_is_claimed(
    malformed: Response,
) -> None:
    with pytest.raises(errors.PlacementError, match="is not") as caught:
        claim(malformed)
    assert not isinstance(caught.value, errors.AllocationUpdateFailed)


UNKNOWN_VERSION = answer(
    406,
    {"errors": [{"status": 406, "detail": "", "min_version": "1.0", "max_version": "1.39"}]},
)
UNKNOWN_PATH = answer(404, {"errors": [{"status": 404, "detail": "not found"}]})
OLDER = answer(200, {"versions": VERSIONS["versions"]})
WRITTEN = Response(204, {}, None, "")


@pytest.mark.parametrize("refused", [UNKNOWN_VERSION, UNKNOWN_PATH])
def test_placement_that_takes_no_alternatives_any_more_is_asked_for_the_first(
    refused: Response,
) -> None:
    transport = Scripted(refused, OLDER, WRITTEN)
    api = PlacementApi(Connection(transport, use_extensions=True))
    answered = api.alternatives.claim_first("c", CANDIDATES, "p", "u", "INSTANCE")
    assert answered == AlternativeAnswer(0, ())
    assert not api.alternatives.available
    *_, request = transport.requests
    assert (request.method, request.path) == ("PUT", "/allocations/c")
    assert request.json == {
        "allocations": CANDIDATES[0]["allocations"],
        "mappings": CANDIDATES[0]["mappings"],
        "project_id": "p",
        "user_id": "u",
        "consumer_type": "INSTANCE",
        "consumer_generation": None,
    }


def test_an_older_placement_that_has_no_room_for_the_first_says_so_of_it_alone() -> None:
    full = refusal(
        "placement.undefined_code",
        "Unable to allocate inventory: Unable to create allocation for 'VCPU' on resource provider "
        "'a'. The requested amount would exceed the capacity.",
    )
    answered = claim(UNKNOWN_VERSION, OLDER, full)
    assert isinstance(answered, AlternativeAnswer)
    assert answered.position is None
    [lost] = answered.lost_alternatives
    assert (lost.position, lost.provider, lost.resource_class) == (0, "a", "VCPU")


def test_what_a_try_before_the_older_placement_claimed_is_ours() -> None:
    held = consumer({"b": {"resources": {"VCPU": 1}, "generation": 3}})
    assert claim(UNKNOWN_VERSION, OLDER, CONFLICT, held) == AlternativeAnswer(1, ())
    other = consumer({"b": {"resources": {"VCPU": 2}}})
    assert isinstance(claim(UNKNOWN_VERSION, OLDER, CONFLICT, other), AlreadyClaimed)
