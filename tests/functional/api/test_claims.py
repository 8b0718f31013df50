"""POST /claims: the first candidate that fits is claimed, the others are reported."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
import sqlalchemy as sa

from placement_server import limits
from placement_server.schemas.allocation import CLAIMED, LOST
from placement_server.store import audit
from placement_server.store.tables import allocations

from .one_host import EMPTY, RP, RP2, UNKNOWN, A, B, held, new_host
from .wsgi_client import Answer, Client

EXTENDED = "placement 1.39, placement-ext 1.1"


@pytest.fixture
def api(api: Client) -> Client:
    """Two hosts: RP with 10 VCPU and DISK_GB, RP2 with 4 VCPU in steps of 2."""
    new_host(api)
    api.inventory(api.provider("other", uuid=RP2), VCPU={"total": 4, "step_size": 2, "min_unit": 2})
    return api


def post(
    api: Client, body: Any, header: str = EXTENDED, method: str = "POST", **more: Any
) -> Answer:
    return api(
        method,
        "/claims",
        body,
        version=None,
        headers={"OpenStack-API-Version": header},
        **more,
    )


def candidates(*amounts: dict[str, dict[str, int]]) -> list[dict[str, Any]]:
    return [
        {"allocations": {provider: {"resources": own} for provider, own in candidate.items()}}
        for candidate in amounts
    ]


def claim_of(
    *amounts: dict[str, dict[str, int]], generation: int | None = None, **more: Any
) -> dict[str, Any]:
    return {
        "consumer_uuid": A,
        "project_id": "project",
        "user_id": "user",
        "consumer_type": "INSTANCE",
        "consumer_generation": generation,
        "candidates": candidates(*amounts),
        **more,
    }


def refusal(answer: Answer) -> dict[str, Any]:
    [error] = answer.json["errors"]
    assert isinstance(error, dict)
    return error


def test_the_first_candidate_is_claimed_when_it_fits(api: Client) -> None:
    answer = post(api, claim_of({RP: {"VCPU": 2, "DISK_GB": 1}}, {RP2: {"VCPU": 2}}))
    assert answer.status == 200
    jsonschema.validate(answer.json, CLAIMED)
    assert answer.json == {
        "chosen": 0,
        "allocations": {RP: {"resources": {"VCPU": 2, "DISK_GB": 1}}},
        "consumer_generation": 1,
        "lost": [],
    }
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["openstack-api-version"] == EXTENDED
    shown = held(api, A)
    assert shown["consumer_generation"] == 1
    assert {uuid: entry["resources"] for uuid, entry in shown["allocations"].items()} == {
        RP: {"VCPU": 2, "DISK_GB": 1}
    }
    assert (shown["project_id"], shown["user_id"], shown["consumer_type"]) == (
        "project",
        "user",
        "INSTANCE",
    )


def test_each_lost_candidate_is_reported_with_what_stood_in_its_way(api: Client) -> None:
    api.claim(B, held={RP: {"VCPU": 7}})
    answer = post(
        api,
        claim_of(
            {RP: {"DISK_GB": 1, "VCPU": 4}},
            {RP2: {"VCPU": 3}},
            {RP: {"VCPU": 1}, UNKNOWN: {"VCPU": 1}},
            {RP2: {"DISK_GB": 1}},
            {RP2: {"CUSTOM_NO": 1}},
            {RP2: {"VCPU": 2}},
            {RP: {"VCPU": 1}},
        ),
    )
    assert answer.status == 200, answer.body
    jsonschema.validate(answer.json, CLAIMED)
    assert answer.json["chosen"] == 5
    short, odd, gone, unstocked, unnamed = answer.json["lost"]
    assert short == {
        "candidate": 0,
        "provider": RP,
        "resource_class": "VCPU",
        "asked": 4,
        "free": 3,
    }
    assert "steps of 2" in odd.pop("reason")
    assert odd == {"candidate": 1, "provider": RP2, "resource_class": "VCPU", "asked": 3}
    assert gone == {
        "candidate": 2,
        "provider": UNKNOWN,
        "reason": f"There is no resource provider {UNKNOWN}.",
    }
    assert "no inventory of class DISK_GB" in unstocked["reason"]
    assert "no resource class CUSTOM_NO" in unnamed["reason"]


def test_when_no_candidate_is_left_all_are_reported_and_nothing_is_written(api: Client) -> None:
    before = api.generation(f"/resource_providers/{RP}")
    answer = post(api, claim_of(*({RP: {"VCPU": 11 + n}} for n in range(100))))
    assert answer.status == 409
    error = refusal(answer)
    assert error["code"] == "placement.no_candidate_left"
    jsonschema.validate(error["lost"], LOST)
    assert [(lost["candidate"], lost["asked"], lost["free"]) for lost in error["lost"]] == [
        (n, 11 + n, 10) for n in range(100)
    ]
    assert held(api, A) == EMPTY
    assert api.generation(f"/resource_providers/{RP}") == before


def test_what_a_consumer_holds_counts_as_given_back_to_every_candidate(api: Client) -> None:
    api.claim(A, held={RP: {"VCPU": 8}})
    answer = post(api, claim_of({RP: {"VCPU": 11}}, {RP: {"VCPU": 9}}, generation=1))
    assert (answer.json["chosen"], answer.json["lost"][0]["free"]) == (1, 10)
    assert answer.json["consumer_generation"] == 2
    usages = api.get(f"/resource_providers/{RP}/usages").json["usages"]
    assert usages == {"VCPU": 9, "DISK_GB": 0}


def test_what_a_consumer_leaves_is_free_again(api: Client) -> None:
    api.claim(A, held={RP: {"VCPU": 8}})
    answer = post(api, claim_of({RP2: {"VCPU": 4}}, generation=1))
    assert answer.json["chosen"] == 0
    assert api.get(f"/resource_providers/{RP}/usages").json["usages"]["VCPU"] == 0


def test_an_allocation_whose_provider_is_gone_is_given_up(api: Client) -> None:
    """Software of old left such allocations."""
    api.claim(A, held={RP: {"VCPU": 1}})
    with api.store.engine.begin() as connection:
        row = {"resource_provider_id": 9999, "consumer_id": A, "resource_class_id": 0, "used": 1}
        connection.execute(sa.insert(allocations).values(row))
    answer = post(api, claim_of({RP: {"VCPU": 2}}, generation=1))
    assert answer.status == 200, answer.body
    assert api.store.read(audit.audit) == []


def test_a_claim_that_is_repeated_meets_the_generation_that_it_made_itself(api: Client) -> None:
    body = claim_of({RP: {"VCPU": 1}})
    assert post(api, body).status == 200
    again = post(api, body)
    assert again.status == 409
    assert refusal(again)["code"] == "placement.concurrent_update"
    assert "consumer generation conflict" in again.detail
    assert held(api, A)["allocations"][RP]["resources"] == {"VCPU": 1}


@pytest.mark.parametrize("generation", [0, 7])
def test_another_generation_than_that_of_the_consumer_is_refused(
    api: Client, generation: int
) -> None:
    answer = post(api, claim_of({RP: {"VCPU": 1}}, generation=generation))
    assert refusal(answer)["code"] == "placement.concurrent_update"
    assert held(api, A) == EMPTY


def test_mappings_of_candidates_are_accepted_as_by_put(api: Client) -> None:
    body = claim_of({RP: {"VCPU": 1}})
    body["candidates"][0]["mappings"] = {"": [RP], "_A": [RP]}
    assert post(api, body).status == 200
    body["candidates"][0]["mappings"] = {"_A": []}
    assert post(api, body).status == 400


def test_the_consumer_is_named_in_any_spelling_of_its_uuid(api: Client) -> None:
    assert post(api, claim_of({RP: {"VCPU": 1}}, consumer_uuid=A.upper())).status == 200
    assert held(api, A)["allocations"]


@pytest.mark.parametrize(
    "change",
    [
        {"consumer_uuid": "nobody"},
        {"candidates": []},
        {"candidates": [{"allocations": {}}]},
        {"candidates": [{}]},
        {"candidates": [{"allocations": {RP: {"resources": {"VCPU": 0}}}}]},
        {"candidates": candidates(*[{RP: {"VCPU": 1}}] * (limits.CANDIDATES + 1))},
        {"consumer_generation": "1"},
        {"consumer_type": "instance"},
        {"allocations": {}},
        *({name: None} for name in claim_of()),
    ],
    ids=str,
)
def test_a_malformed_claim_is_refused(api: Client, change: dict[str, Any]) -> None:
    body = claim_of({RP: {"VCPU": 1}}, **change)
    absent = {name for name, value in change.items() if value is None}
    answer = post(api, {name: value for name, value in body.items() if name not in absent})
    assert answer.status == 400
    assert held(api, A) == EMPTY


def test_the_limit_of_names_is_for_all_candidates_together(api: Client) -> None:
    many = [
        {f"{number:08x}-0000-4000-8000-{part:012x}": {"VCPU": 1} for part in range(101)}
        for number in range(100)
    ]
    answer = post(api, claim_of(*many))
    assert answer.status == 400
    assert "10100 resource providers, the limit is 10000" in answer.detail


def test_a_thousand_candidates_are_tried(api: Client) -> None:
    unknown = [f"{number:08x}-0000-4000-8000-000000000001" for number in range(999)]
    lost = [{RP: {"VCPU": 1}, uuid: {"VCPU": 1}} for uuid in unknown]
    answer = post(api, claim_of(*lost, {RP: {"VCPU": 1}}))
    assert answer.json["chosen"] == limits.CANDIDATES - 1 == 999
    assert [entry["provider"] for entry in answer.json["lost"]] == unknown


@pytest.mark.parametrize(
    ("header", "more", "status"),
    [
        ("placement 1.39", {}, 404),
        ("placement 1.39, placement-ext 1.0", {}, 404),
        ("placement 1.37, placement-ext 1.1", {}, 404),
        (EXTENDED, {"token": "user"}, 403),
        (EXTENDED, {"token": None}, 401),
        (EXTENDED, {"method": "GET"}, 405),
    ],
)
def test_who_may_not_claim_is_refused(
    api: Client, header: str, more: dict[str, Any], status: int
) -> None:
    assert post(api, claim_of({RP: {"VCPU": 1}}), header, **more).status == status
    assert held(api, A) == EMPTY
