"""Questions and changes that POST /what_if refuses, and where it points to."""

from __future__ import annotations

from typing import Any

import pytest

from placement_server import limits
from placement_server.candidates.what_if import MOST_ADDED

from ..candidate_world import UNKNOWN, UUID
from ..conftest import MakeApi
from ..wsgi_client import EXTENDED, Client
from .questions import (
    CONSUMERS,
    ROUTES,
    VCPU,
    answers,
    asked_directly,
    what_if,
)


def test_a_question_that_fails_has_the_error_of_its_route_in_its_place(api: Client) -> None:
    questions = [
        *VCPU,
        {"candidates": "resources=NOPE:1"},
        {"candidates": "spam=é\U0001f600"},
        {"explanation": ""},
        *VCPU,
    ]
    first, *failed, last = answers(api, [], questions)
    assert first == last == asked_directly(api, VCPU)[0]
    direct = asked_directly(api, [{"candidates": "resources=NOPE:1"}])[0]["errors"][0]
    assert failed[0]["errors"][0] | {"request_id": ""} == direct | {"request_id": ""}
    assert [answer["errors"][0]["status"] for answer in failed] == [400, 400, 400]


EACH = [{kind: "resources=VCPU:1"} for kind in ROUTES]


def test_a_question_needs_the_rule_of_its_route(make_api: MakeApi) -> None:
    policy = (
        "'placement:what_if': '@'\n"
        "'placement:allocation_candidates:list': '!'\n'placement:capacity:show': '!'\n"
    )
    refused = answers(make_api(policy), [], EACH)
    assert [answer["errors"][0]["status"] for answer in refused] == [403, 403, 403]


def test_a_question_needs_the_version_of_its_route(api: Client) -> None:
    listed = what_if(api, [], EACH, version="1.28, placement-ext 1.1").json["answers"]
    assert ["errors" in answer for answer in listed] == [False, False, True]
    assert listed[2]["errors"][0]["status"] == 404


REFUSED: list[tuple[Any, int, str]] = [
    (
        {"set_inventory": {"provider": UNKNOWN, "resource_class": "VCPU", "total": 1}},
        404,
        "provider",
    ),
    (
        {"set_inventory": {"provider": UUID["hostB"], "resource_class": "NOPE", "total": 1}},
        400,
        "resource_class",
    ),
    (
        {"set_inventory": {"provider": UUID["hostB"], "resource_class": "VCPU", "total": 0}},
        400,
        "total",
    ),
    (
        {
            "set_inventory": {
                "provider": UUID["hostB"],
                "resource_class": "VCPU",
                "total": 1,
                "reserved": 2,
            }
        },
        400,
        "reserved",
    ),
    (
        {"set_traits": {"provider": UUID["hostB"], "traits": ["HW_NUMA_ROOT", "CUSTOM_NO"]}},
        400,
        "traits/1",
    ),
    ({"remove_tree": UNKNOWN}, 404, ""),
    ({"remove_tree": UUID["cellA0"]}, 400, ""),
    ({"add_tree": {"like": UUID["nicA0"]}}, 400, "like"),
    ({"add_tree": {"like": UUID["hostA"], "copies": MOST_ADDED // 5 + 1}}, 400, "copies"),
    ({"add_tree": {"like": UUID["hostA"], "copies": 10**30}}, 400, "copies"),
    ({"release": UNKNOWN}, 404, ""),
    (
        {"claim": {"allocations": {UUID["hostB"]: {"resources": {"VCPU": 5}}}}},
        409,
        f"allocations/{UUID['hostB']}/resources/VCPU",
    ),
    (
        {"claim": {"allocations": {UUID["hostB"]: {"resources": {"NOPE": 5}}}}},
        400,
        f"allocations/{UUID['hostB']}/resources/NOPE",
    ),
    ({"claim": {"allocations": {UUID["hostB"]: {"resources": {"VGPU": 5}}}}}, 409, "allocations"),
    ({"claim": {"allocations": {}}}, 400, "allocations"),
]


@pytest.mark.parametrize(("change", "status", "place"), REFUSED)
def test_a_change_that_cannot_be_supposed_is_pointed_to(
    api: Client, change: Any, status: int, place: str
) -> None:
    answer = what_if(api, [{"release": CONSUMERS[2]}, change], VCPU)
    assert answer.status == status, answer.body
    pointer = "/".join(filter(None, ["/changes/1", next(iter(change)), place]))
    assert answer.error["pointer"] == pointer
    assert pointer in answer.detail


def test_what_earlier_changes_removed_is_unknown_to_later_ones(api: Client) -> None:
    gone = [{"release": CONSUMERS[0]}, {"remove_tree": UUID["hostA"]}]
    for change in (
        {"release": CONSUMERS[0]},
        {"release": CONSUMERS[3]},
        {"remove_tree": UUID["hostA"]},
        {"set_traits": {"provider": UUID["nicA0"], "traits": []}},
    ):
        assert what_if(api, [*gone, change], VCPU).status == 404


HOSTILE: list[tuple[Any, str]] = [
    ({}, ""),
    ([], ""),
    ({"changes": []}, ""),
    ({"changes": {}, "questions": []}, "/changes"),
    ({"changes": [{}], "questions": []}, "/changes/0"),
    ({"changes": [{"drop": 1}], "questions": []}, "/changes/0"),
    ({"changes": [{"release": UNKNOWN, "remove_tree": UNKNOWN}], "questions": []}, "/changes/0"),
    ({"changes": [{"release": "me"}], "questions": []}, "/changes/0/release"),
    ({"changes": [{"release": UNKNOWN}] * (limits.CHANGES + 1), "questions": []}, "/changes"),
    ({"changes": [], "questions": [{"candidates": 1}]}, "/questions/0/candidates"),
    ({"changes": [], "questions": VCPU * (limits.QUESTIONS + 1)}, "/questions"),
    ({"changes": [], "questions": [{"candidates": "", "explanation": ""}]}, "/questions/0"),
]


@pytest.mark.parametrize(("body", "pointer"), HOSTILE)
def test_a_malformed_body_is_pointed_to(api: Client, body: Any, pointer: str) -> None:
    answer = api("POST", "/what_if", body, version=EXTENDED)
    assert answer.status == 400, answer.body
    assert answer.error["pointer"] == pointer
