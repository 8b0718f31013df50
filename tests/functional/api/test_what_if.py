"""POST /what_if: answers about supposed changes, equal to those after they were made."""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from placement_server import limits
from placement_server.candidates.what_if.changes import MOST_ADDED

from .candidate_world import A1, UNKNOWN, UUID, build_world, path_of
from .conftest import MakeApi
from .wsgi_client import Answer, Client, claim_body

EXTENDED = {"OpenStack-API-Version": "placement 1.39, placement-ext 1.1"}
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
    return api("POST", "/what_if", body, version=None, headers=EXTENDED, **options)


def answers(api: Client, changes: list[Any], questions: list[Any]) -> list[Any]:
    answer = what_if(api, changes, questions)
    assert answer.status == 200, answer.body
    listed: list[Any] = answer.json["answers"]
    return listed


def asked_directly(api: Client, questions: list[Any]) -> list[Any]:
    directly = []
    for question in questions:
        ((kind, query),) = question.items()
        answer = api.get(f"{ROUTES[kind]}?{query}", version=None, headers=EXTENDED).json
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


@pytest.fixture
def api(make_api: MakeApi) -> Client:
    return build(make_api())


# The same changes through the plain API: what the answers are compared with.


class Operator:
    """Makes changes really."""

    def __init__(self, api: Client) -> None:
        self.api = api
        self.copies: dict[str, int] = {}

    def make(self, change: dict[str, Any]) -> None:
        ((kind, body),) = change.items()
        getattr(self, kind)(body)

    def put(self, provider: str, part: str, content: Any) -> None:
        path = path_of(provider)
        body = {"resource_provider_generation": self.api.generation(path), part: content}
        answer = self.api.put(f"{path}/{part}", body)
        assert answer.status == 200, answer.body

    def set_inventory(self, body: dict[str, Any]) -> None:
        provider = body["provider"]
        stock = self.api.get(f"{path_of(provider)}/inventories").json["inventories"]
        record = {
            name: value
            for name, value in body.items()
            if name not in ("provider", "resource_class")
        }
        self.put(provider, "inventories", {**stock, body["resource_class"]: record})

    def set_traits(self, body: dict[str, Any]) -> None:
        self.put(body["provider"], "traits", body["traits"])

    def tree(self, root: str) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = self.api.get(f"/resource_providers?in_tree={root}").json[
            "resource_providers"
        ]
        return listed

    def remove_tree(self, root: str) -> None:
        providers = {provider["uuid"] for provider in self.tree(root)}
        for provider in providers:
            holders = self.api.get(f"{path_of(provider)}/allocations").json["allocations"]
            for consumer in holders:
                self.keep(consumer, lambda uuid: uuid not in providers)
        for provider in reversed(self.parents_first(root)):
            assert self.api.delete(path_of(provider["uuid"])).status == 204

    def keep(self, consumer: str, is_kept: Callable[[str], bool]) -> None:
        held = self.api.get(f"/allocations/{consumer}").json
        kept = {
            provider: {"resources": entry["resources"]}
            for provider, entry in held["allocations"].items()
            if is_kept(provider)
        }
        body = claim_body({}, held["consumer_generation"], allocations=kept)
        assert self.api.put(f"/allocations/{consumer}", body).status == 204

    def parents_first(self, root: str) -> list[dict[str, Any]]:
        providers, reached = self.tree(root), {None}
        ordered: list[dict[str, Any]] = []
        while len(ordered) < len(providers):
            for provider in providers:
                if provider["parent_provider_uuid"] in reached and provider not in ordered:
                    ordered.append(provider)
                    reached.add(provider["uuid"])
        return ordered

    def add_tree(self, body: dict[str, Any]) -> None:
        for _ in range(body.get("copies", 1)):
            number = self.copies[body["like"]] = self.copies.get(body["like"], 0) + 1

            def copied(uuid_: str | None, number: int = number) -> str | None:
                return uuid_ and str(uuid.uuid5(uuid.UUID(uuid_), f"copy {number}"))

            for provider in self.parents_first(body["like"]):
                self.copy(provider, copied)

    def copy(self, provider: dict[str, Any], copied: Callable[[str | None], str | None]) -> None:
        old, new = provider["uuid"], copied(provider["uuid"])
        assert new is not None
        created = self.api.post(
            "/resource_providers",
            {
                "name": f"copy {new}",
                "uuid": new,
                "parent_provider_uuid": copied(provider["parent_provider_uuid"]),
            },
        )
        assert created.status == 200, created.body
        for part in ("inventories", "traits", "aggregates"):
            self.put(new, part, self.api.get(f"{path_of(old)}/{part}").json[part])

    def release(self, consumer: str) -> None:
        assert self.api.delete(f"/allocations/{consumer}").status == 204

    def claim(self, body: dict[str, Any]) -> None:
        answer = self.api.put(f"/allocations/{uuid.uuid4()}", claim_body({}, **body))
        assert answer.status == 204, answer.body


class Fleet:
    """What random changes may still name, so that each of them can be made."""

    def __init__(self, choices: random.Random) -> None:
        self.choices = choices
        self.trees = {
            "hostA": ["hostA", "cellA0", "nicA0", "cellA1", "nicA1"],
            "hostB": ["hostB"],
            "pool1": ["pool1"],
            "pool2": ["pool2"],
        }
        self.held = dict(zip(CONSUMERS, HELD, strict=True))

    def providers(self) -> list[str]:
        return [name for names in self.trees.values() for name in names]

    def change(self) -> dict[str, Any]:
        choices = self.choices
        kinds = ["set_inventory", "set_inventory", "set_traits", "add_tree", "release", "claim"]
        kind = choices.choice([*kinds, "remove_tree"] if len(self.trees) > 1 else kinds)
        return {kind: getattr(self, kind)()} if kind != "release" or self.held else self.change()

    def set_inventory(self) -> dict[str, Any]:
        choices = self.choices
        return {
            "provider": UUID[choices.choice(self.providers())],
            "resource_class": choices.choice(["VCPU", "MEMORY_MB", "DISK_GB", "SRIOV_NET_VF"]),
            "total": choices.choice([1, 7, 16, 2000]),
            "reserved": choices.choice([0, 0, 1]),
            "step_size": choices.choice([1, 1, 2]),
            "allocation_ratio": choices.choice([1.0, 1.0, 1.5]),
        }

    def set_traits(self) -> dict[str, Any]:
        names = ["CUSTOM_FAST", "CUSTOM_RACK", "HW_NUMA_ROOT", "MISC_SHARES_VIA_AGGREGATE"]
        traits = self.choices.sample(names, self.choices.randint(0, 3))
        return {"provider": UUID[self.choices.choice(self.providers())], "traits": traits}

    def add_tree(self) -> dict[str, Any]:
        like = self.choices.choice(list(self.trees))
        return {"like": UUID[like], "copies": self.choices.randint(1, 3)}

    def remove_tree(self) -> str:
        root = self.choices.choice(list(self.trees))
        gone = self.trees.pop(root)
        self.held = {
            consumer: rest
            for consumer, held in self.held.items()
            if (rest := {name: what for name, what in held.items() if name not in gone})
        }
        return UUID[root]

    def release(self) -> str:
        consumer = self.choices.choice(list(self.held))
        del self.held[consumer]
        return consumer

    def claim(self) -> dict[str, Any]:
        # On a provider of its own, so that it fits whatever was claimed before.
        return {"allocations": {UUID[self.choices.choice(self.providers())]: None}}


def fitting(operator: Operator, change: dict[str, Any]) -> dict[str, Any] | None:
    """Give a claim an amount that fits by what the real server has by then."""
    if "claim" not in change:
        return change
    ((provider, _),) = change["claim"]["allocations"].items()
    stock = operator.api.get(f"{path_of(provider)}/inventories").json["inventories"]
    usages = operator.api.get(f"{path_of(provider)}/usages").json["usages"]
    for name, entry in stock.items():
        capacity = int((entry["total"] - entry["reserved"]) * entry["allocation_ratio"])
        amount = min(2, entry["max_unit"]) // entry["step_size"] * entry["step_size"]
        if 0 < amount <= capacity - usages[name]:
            return {"claim": {"allocations": {provider: {"resources": {name: amount}}}}}
    return None


def without_names(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer without the texts with names, which copies have not, and without who holds what."""
    named = ("sentences", "short") if "closest" in answer else ()
    return {key: value for key, value in answer.items() if key not in named}


@pytest.mark.parametrize("seed", range(10))
def test_the_answers_are_those_of_a_server_on_which_the_changes_were_made(
    make_api: MakeApi, seed: int
) -> None:
    supposed, changed = build(make_api()), build(make_api())
    before = asked_directly(supposed, QUESTIONS)
    fleet, operator = Fleet(random.Random(seed)), Operator(changed)
    changes = []
    for _ in range(7):
        change = fitting(operator, fleet.change())
        if change is not None:
            operator.make(change)
            changes.append(change)
    told = map(without_names, answers(supposed, changes, QUESTIONS))
    assert list(told) == list(map(without_names, asked_directly(changed, QUESTIONS))), changes
    assert asked_directly(supposed, QUESTIONS) == before


VCPU = [{"candidates": "resources=VCPU:1"}]


def hosts(answer: Any) -> set[str]:
    names = {uuid: name for name, uuid in UUID.items()}
    return {
        names.get(provider, provider)
        for request in answer["allocation_requests"]
        for provider in request["allocations"]
    }


def test_a_tree_added_by_one_change_is_named_by_the_next(api: Client) -> None:
    copy = str(uuid.uuid5(uuid.UUID(UUID["hostB"]), "copy 1"))
    changes = [
        {"add_tree": {"like": UUID["hostB"]}},
        {"set_traits": {"provider": copy, "traits": ["CUSTOM_NET1"]}},
        {"claim": {"allocations": {copy: {"resources": {"VCPU": 8}}}, "mappings": {"": [copy]}}},
        {"add_tree": {"like": copy, "copies": 2}},
    ]
    question = {"candidates": "resources=VCPU:1,MEMORY_MB:1&required=CUSTOM_NET1"}
    (answer,) = answers(api, changes, [question])
    assert hosts(answer) == {
        str(uuid.uuid5(uuid.UUID(copy), f"copy {number}")) for number in (1, 2)
    }


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


def test_a_question_needs_the_rule_of_its_route(make_api: MakeApi) -> None:
    policy = "'placement:what_if': '@'\n'placement:allocation_candidates:list': '!'\n"
    (answer,) = answers(make_api(policy), [], VCPU)
    assert answer["errors"][0]["status"] == 403


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
    answer = api("POST", "/what_if", body, version=None, headers=EXTENDED)
    assert answer.status == 400, answer.body
    assert answer.error["pointer"] == pointer


@pytest.mark.parametrize("version", ["placement 1.39", "placement 1.39, placement-ext 1.0"])
def test_without_version_1_1_of_the_extensions_there_is_no_such_path(
    api: Client, version: str
) -> None:
    headers = {"OpenStack-API-Version": version}
    assert api("POST", "/what_if", {}, version=None, headers=headers).status == 404


def test_as_many_providers_as_may_be_added_are_added_within_the_memory_of_a_search(
    make_api: MakeApi,
) -> None:
    api = build(make_api(placement_server__search_memory=64))
    added = [{"add_tree": {"like": UUID["hostB"], "copies": MOST_ADDED}}]
    (answer,) = answers(api, added, [{"candidates": "resources=VCPU:5&limit=3"}])
    assert len(answer["allocation_requests"]) == 3
    assert asked_directly(api, VCPU)[0]["allocation_requests"]


def test_changes_and_questions_share_the_deadline_of_one_search(make_api: MakeApi) -> None:
    api = build(make_api(placement_server__search_deadline=0.1))
    added = [{"add_tree": {"like": UUID["hostB"], "copies": MOST_ADDED}}]
    many = "&".join(f"resources_{n}=VCPU:1" for n in range(9))
    endless = {"candidates": f"{many}&group_policy=none"}
    answer = what_if(api, added, [endless, endless])
    if answer.status == 200:
        statuses = [entry["errors"][0]["status"] for entry in answer.json["answers"]]
        assert statuses == [503, 503]
    else:
        assert answer.status == 503
    assert answers(api, [], VCPU) == asked_directly(api, VCPU)


def test_what_does_not_fit_into_the_memory_of_a_search_is_given_up(make_api: MakeApi) -> None:
    api = build(make_api(placement_server__search_memory=1))
    added = [{"add_tree": {"like": UUID["hostB"], "copies": MOST_ADDED}}]
    answer = what_if(api, added, VCPU)
    assert answer.status == 503
    assert "search_memory" in answer.detail
    (alone,) = answers(api, [], VCPU)
    assert hosts(alone) == {"cellA0", "hostB"}


def test_a_release_and_the_index_are_of_one_moment(api: Client) -> None:
    """While a consumer moves between two hosts, without it there is always room on both."""
    stop = threading.Event()
    consumer = CONSUMERS[0]
    places = [{UUID["hostB"]: {"VCPU": 4}}, {UUID["cellA0"]: {"VCPU": 2}}]

    def move() -> int:
        moves = 0
        while not stop.is_set():
            generation = api.get(f"/allocations/{consumer}").json["consumer_generation"]
            body = claim_body(places[moves % 2], generation)
            assert api.put(f"/allocations/{consumer}", body).status == 204
            moves += 1
        return moves

    questions = [{"candidates": f"resources=VCPU:{n}"} for n in (2, 8)]
    with ThreadPoolExecutor(1) as pool:
        moving = pool.submit(move)
        try:
            for _ in range(30):
                two, eight = answers(api, [{"release": consumer}], questions)
                assert hosts(two) == {"cellA0", "hostB"}
                assert hosts(eight) == {"hostB"}
        finally:
            stop.set()
        assert moving.result() > 1
