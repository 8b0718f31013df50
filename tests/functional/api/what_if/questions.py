"""Questions about a world, and how they are asked, with supposed changes or directly."""

from __future__ import annotations

from typing import Any

from tests.fixtures.allocations import claim_body

from ..candidate_world import A1, UUID, build_world
from ..wsgi_client import EXTENDED, Answer, Client

QUESTIONS = [
    {"candidates": "resources=VCPU:3,MEMORY_MB:1024&limit=20"},
    {"candidates": "resources_C=VCPU:2&resources_N=SRIOV_NET_VF:1&same_subtree=_C,_N"},
    {"candidates": "resources=DISK_GB:50&required=!CUSTOM_FAST"},
    {"candidates": f"resources=VCPU:1&member_of={A1}&required=CUSTOM_FAST&root_member_of={A1}"},
    {"explanation": "resources=VCPU:6,DISK_GB:90&required=CUSTOM_FAST"},
    {"explanation": "resources_A=VCPU:8&resources_B=VCPU:8&isolate=_A,_B"},
    {"capacity": "resources=VCPU:2,DISK_GB:30"},
    {"capacity": "resources_C=VCPU:1&resources_N=SRIOV_NET_VF:1&same_subtree=_C,_N&limit=2"},
]


CONSUMERS = [f"c0000000-0000-4000-8000-00000000000{number}" for number in range(4)]


HELD: list[dict[str, dict[str, int]]] = [
    {"hostB": {"VCPU": 4, "MEMORY_MB": 1024}, "pool1": {"DISK_GB": 100}},
    {"cellA0": {"VCPU": 6}, "nicA0": {"SRIOV_NET_VF": 2}, "hostA": {"MEMORY_MB": 2048}},
    {"pool1": {"DISK_GB": 850}, "pool2": {"DISK_GB": 990}},
    {"cellA1": {"VCPU": 8}, "nicA1": {"SRIOV_NET_VF": 4}},
]


ROUTES = {
    "candidates": "/allocation_candidates",
    "explanation": "/candidate_explanation",
    "capacity": "/capacity",
}


def allocations(held: dict[str, dict[str, int]]) -> dict[str, Any]:
    return {UUID[name]: {"resources": resources} for name, resources in held.items()}


def what_if(api: Client, changes: list[Any], questions: list[Any], **options: Any) -> Answer:
    body = {"changes": changes, "questions": questions}
    return api("POST", "/what_if", body, **{"version": EXTENDED, **options})


def answers(api: Client, changes: list[Any], questions: list[Any]) -> list[Any]:
    answer = what_if(api, changes, questions)
    assert answer.status == 200, answer.body
    listed: list[Any] = answer.json["answers"]
    return listed


def asked_directly(api: Client, questions: list[Any]) -> list[Any]:
    directly = []
    for question in questions:
        ((kind, query),) = question.items()
        answer = api.get(f"{ROUTES[kind]}?{query}", version=EXTENDED).json
        for tree in answer["trees"] if kind == "capacity" else ():
            # A copy that is only supposed has no name.
            tree["name"] = tree["name"] if tree["root"] in UUID.values() else None
        directly.append(answer)
    return directly


def build(api: Client) -> Client:
    build_world(api)
    for consumer, held in zip(CONSUMERS, HELD, strict=True):
        body = claim_body({UUID[name]: resources for name, resources in held.items()})
        assert api.put(f"/allocations/{consumer}", body).status == 204
    return api


VCPU = [{"candidates": "resources=VCPU:1"}]


def hosts(answer: Any) -> set[str]:
    names = {uuid: name for name, uuid in UUID.items()}
    return {
        names.get(provider, provider)
        for request in answer["allocation_requests"]
        for provider in request["allocations"]
    }
