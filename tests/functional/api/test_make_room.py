"""Plans that make room, carried out step by step on the server that made them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fixtures.allocations import claim_body

from .candidate_world import UNKNOWN, path_of
from .conftest import MakeApi
from .wsgi_client import EXTENDED, Answer, Client

ZONE = "11111111-0000-4000-8000-0000000000aa"
HOSTS = {name: f"{number:08}-0000-4000-8000-0000000000bb" for number, name in enumerate("abcd")}
GPUS = {name: f"{number:08}-0000-4000-8000-0000000000cc" for number, name in enumerate("abcd")}
SMALL, LARGE, ON_B, ON_C = (f"c0000000-0000-4000-8000-00000000000{n}" for n in range(4))
HELD: dict[str, dict[str, dict[str, int]]] = {
    SMALL: {HOSTS["a"]: {"VCPU": 4, "MEMORY_MB": 2048}, GPUS["a"]: {"VGPU": 1}},
    LARGE: {HOSTS["a"]: {"VCPU": 4, "MEMORY_MB": 4096}, GPUS["a"]: {"VGPU": 1}},
    ON_B: {HOSTS["b"]: {"VCPU": 4, "MEMORY_MB": 1024}},
    ON_C: {HOSTS["c"]: {"VCPU": 4, "MEMORY_MB": 512}, GPUS["c"]: {"VGPU": 1}},
}
WHOLE_HOST = "resources_1=VCPU:8&resources_2=VGPU:1&group_policy=none"
ENABLED = "&root_required=!COMPUTE_STATUS_DISABLED"
NAMES = {SMALL: "small", LARGE: "large", ON_B: "on_b", ON_C: "on_c"}


def build(api: Client) -> Client:
    """Four hosts of 8 VCPU and 8 GiB with a GPU each; the request needs a whole one.

    a is full, b and c have 4 VCPU left; c has a trait of its own; d is empty, but disabled.
    """
    for name, uuid in HOSTS.items():
        api.provider(name, uuid=uuid)
        api.provider(f"{name} gpu", uuid=GPUS[name], parent_provider_uuid=uuid)
        api.inventory(path_of(uuid), VCPU=8, MEMORY_MB=8192)
        api.inventory(path_of(GPUS[name]), VGPU=2)
    api.traits(path_of(HOSTS["d"]), "COMPUTE_STATUS_DISABLED")
    api.traits(path_of(HOSTS["c"]), "CUSTOM_RACK")
    api.aggregates(path_of(HOSTS["c"]), ZONE)
    for consumer, held in HELD.items():
        kind = NAMES[consumer].upper()
        body = claim_body(held, project_id=f"project {NAMES[consumer]}", consumer_type=kind)
        assert api.put(f"/allocations/{consumer}", body).status == 204
    return api


@pytest.fixture
def api(make_api: MakeApi) -> Client:
    return make_api(filled_by=build)


def ask(api: Client, **body: Any) -> Answer:
    return api("POST", "/make_room", body, version=EXTENDED)


def room(api: Client, **body: Any) -> Any:
    """Return the answer, for which a search beside other work has the time it needs."""
    answer = ask(api, time_limit=600, **body)
    assert answer.status == 200, answer.body
    return answer.json


def moves(plan: Any) -> set[tuple[str, str, str]]:
    return {
        (NAMES[move["consumer"]], move["from"]["name"], move["to"]["name"])
        for move in plan["moves"]
    }


def carry_out(api: Client, plan: Any) -> None:
    """Make each move as a migration does: another consumer holds the source meanwhile."""
    for number, move in enumerate(plan["moves"]):
        consumer, migration = move["consumer"], f"d0000000-0000-4000-8000-00000000000{number}"
        held = api.get(f"/allocations/{consumer}").json
        source = {
            provider: {"resources": entry["resources"]}
            for provider, entry in held["allocations"].items()
        }
        owner = {name: held[name] for name in ("project_id", "user_id", "consumer_type")}
        body = {
            migration: {"allocations": source, "consumer_generation": None, **owner},
            consumer: {
                "allocations": move["allocations"],
                "mappings": move["mappings"],
                "consumer_generation": held["consumer_generation"],
                **owner,
            },
        }
        assert api.post("/allocations", body).status == 204
        assert api.delete(f"/allocations/{migration}").status == 204
    for to in (*plan["moves"], *plan["places"]):
        assert all(len(set(uuids)) == len(uuids) for uuids in to["mappings"].values())
    for number, place in enumerate(plan["places"]):
        claim = {key: place[key] for key in ("allocations", "mappings")}
        guest = f"e0000000-0000-4000-8000-00000000000{number}"
        assert api.put(f"/allocations/{guest}", claim_body({}, **claim)).status == 204


TO_C, OFF_A = {("on_b", "b", "c")}, {("small", "a", "b"), ("large", "a", "c")}
QUESTIONS: dict[str, tuple[dict[str, Any], set[tuple[str, str, str]] | None, str]] = {
    "fewest, then least memory": ({"request": WHOLE_HOST + ENABLED}, TO_C, "b"),
    "nothing to move": ({"request": "resources=VCPU:4" + ENABLED}, set(), "b"),
    "two places": ({"request": WHOLE_HOST, "places": 2}, TO_C, "bd"),
    "what a guest really asks for": (
        {
            "request": WHOLE_HOST + ENABLED,
            "requests": {ON_C: "resources=VCPU:4,MEMORY_MB:512"},
        },
        {("on_c", "c", "b")},
        "c",
    ),
    "what a guest in capitals really asks for": (
        {
            "request": WHOLE_HOST + ENABLED,
            "requests": {ON_C.upper(): "resources=VCPU:4,MEMORY_MB:512"},
        },
        {("on_c", "c", "b")},
        "c",
    ),
    "not where the caller cannot have it": (
        {"request": WHOLE_HOST + ENABLED, "avoid": [HOSTS["b"]]},
        OFF_A,
        "a",
    ),
    "an emptied tree": ({"empty": [HOSTS["b"]]}, TO_C, ""),
    "an emptied tree and a request": (
        {"empty": [HOSTS["b"]], "request": "resources=VCPU:5"},
        TO_C,
        "d",
    ),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_plan_can_be_carried_out_move_by_move(api: Client, question: str) -> None:
    body, expected_moves, hosts = QUESTIONS[question]
    answer = room(api, **body)
    [plan] = answer["plans"]
    assert (moves(plan), answer["proved"], plan["whole"]) == (expected_moves, True, True)
    assert sorted(place["to"]["name"] for place in plan["places"]) == list(hosts)
    held = (HELD[move["consumer"]][HOSTS[move["from"]["name"]]] for move in plan["moves"])
    assert plan["memory_mb"] == sum(amounts["MEMORY_MB"] for amounts in held)
    carry_out(api, plan)


@pytest.mark.parametrize(
    ("left_alone", "expected_moves"),
    [
        ({"consumers": [ON_B]}, OFF_A),
        ({"consumers": [ON_B.upper()]}, OFF_A),
        ({"projects": ["project on_b"]}, OFF_A),
        ({"types": ["ON_B"]}, OFF_A),
        ({"trees": [HOSTS["b"]]}, None),
        ({"trees": [HOSTS["c"]]}, None),
        ({"traits": ["CUSTOM_RACK", "COMPUTE_STATUS_DISABLED"]}, None),
        ({"aggregates": [ZONE]}, None),
        ({"aggregates": [ZONE.replace("-", "")]}, None),
        ({"traits": []}, TO_C),
    ],
)
def test_what_is_left_alone_neither_moves_nor_takes_moves(
    api: Client, left_alone: dict[str, Any], expected_moves: set[tuple[str, str, str]] | None
) -> None:
    answer = room(api, request=WHOLE_HOST + ENABLED, leave_alone=left_alone)
    assert answer["proved"]
    if expected_moves is None:
        assert answer["plans"] == []
    else:
        [plan] = answer["plans"]
        assert {move[:2] for move in moves(plan)} == {move[:2] for move in expected_moves}
        carry_out(api, plan)


def test_an_emptied_tree_keeps_who_is_left_alone_and_who_fits_nowhere(api: Client) -> None:
    answer = room(api, empty=[HOSTS["a"]], leave_alone={"consumers": [LARGE]})
    assert answer["stays"] == [LARGE]
    assert {move[:2] for move in moves(answer["plans"][0])} == {("small", "a")}
    answer = room(api, empty=[HOSTS["a"], HOSTS["b"]])
    [plan] = answer["plans"]
    assert (plan["whole"], len(plan["moves"]), len(plan["stuck"])) == (False, 1, 2)


def test_further_plans_move_other_consumers(api: Client) -> None:
    body = {"request": WHOLE_HOST + ENABLED, "requests": {ON_C: "resources=VCPU:4"}}
    answer = room(api, plans=3, **body)
    assert [moves(plan) for plan in answer["plans"]] == [{("on_c", "c", "b")}, TO_C]


def test_an_empty_fleet_has_no_plan(make_api: MakeApi) -> None:
    answer = room(make_api(), request="resources=VCPU:1")
    assert (answer["plans"], answer["proved"]) == ([], True)


def test_without_time_nothing_is_proved(api: Client) -> None:
    answer = ask(api, request=WHOLE_HOST + ENABLED, time_limit=1e-9).json
    assert (answer["plans"], answer["proved"]) == ([], False)


@pytest.mark.parametrize(
    ("body", "status", "pointer"),
    [
        ({}, 400, ""),
        ({"request": "resources=VCPU:1", "max_moves": 9}, 400, "/max_moves"),
        ({"request": "resources=VCPU:1", "places": 0}, 400, "/places"),
        ({"request": "resources=VCPU:1", "time_limit": 10**400}, 400, "/time_limit"),
        ({"request": "resources=VCPU:1", "leave_alone": {"hosts": []}}, 400, "/leave_alone"),
        ({"empty": [UNKNOWN]}, 404, "/empty/0"),
        ({"empty": [HOSTS["a"]], "requests": {"on_b": "resources=VCPU:1"}}, 400, "/requests"),
        ({"empty": [HOSTS["a"], GPUS["a"]]}, 404, "/empty/1"),
        (
            {"request": "resources=VCPU:1", "leave_alone": {"trees": [UNKNOWN]}},
            404,
            "/leave_alone/trees/0",
        ),
        ({"request": "resources=NOPE:1"}, 400, None),
        ({"request": "resources=VCPU"}, 400, None),
        ({"request": WHOLE_HOST, "requests": {ON_B: "spam=1"}}, 400, None),
        ({"request": WHOLE_HOST, "requests": {ON_B: 1}}, 400, f"/requests/{ON_B}"),
    ],
)
def test_a_wrong_question_is_refused(
    api: Client, body: dict[str, Any], status: int, pointer: str | None
) -> None:
    answer = ask(api, **body)
    assert answer.status == status, answer.body
    assert answer.error.get("pointer") == pointer
