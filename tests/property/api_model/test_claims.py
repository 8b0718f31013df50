"""POST /claims does what PUT after PUT does: the same choice, the same state afterwards."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.functional.api.wsgi_client import Client, claim_body
from tests.property.api_model.apis import new_api

EXTENDED = "placement 1.39, placement-ext 1.1"
CLASSES = ("VCPU", "DISK_GB", "CUSTOM_THERE", "CUSTOM_MISSING")
HOSTS = 4
CONSUMERS = 3

_numbers = itertools.count(1)


def _uuid() -> str:
    return f"00000000-0000-4000-8000-{next(_numbers):012x}"


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[Client, Client]]:
    """Two servers that get the same providers; one hears of claims, the other of PUTs."""
    pair = new_api(), new_api()
    for api in pair:
        assert api.put("/resource_classes/CUSTOM_THERE").status == 201
    yield pair
    for api in pair:
        api.store.close()


_inventory = st.fixed_dictionaries(
    {"total": st.integers(1, 8)},
    optional={
        "min_unit": st.integers(1, 3),
        "max_unit": st.integers(2, 6),
        "step_size": st.integers(1, 3),
        "allocation_ratio": st.sampled_from([0.5, 1.5]),
    },
)
_inventories = st.dictionaries(st.sampled_from(CLASSES[:3]), _inventory)
_amounts = st.dictionaries(st.sampled_from(CLASSES), st.integers(1, 5), min_size=1, max_size=2)
# the last host is never made
_candidate = st.dictionaries(st.integers(0, HOSTS), _amounts, min_size=1, max_size=2)
_claim = st.tuples(
    st.just("claim"),
    st.integers(0, CONSUMERS - 1),
    st.lists(_candidate, min_size=1, max_size=9),
    st.sampled_from([0, 0, 0, 1]),
)
_steps = st.lists(
    _claim
    | st.tuples(st.just("stock"), st.integers(0, HOSTS - 1), _inventories)
    | st.tuples(st.just("leave"), st.integers(0, CONSUMERS - 1)),
    min_size=1,
    max_size=8,
)


def by_puts(
    api: Client, consumer: str, candidates: list[Any], generation: int | None
) -> tuple[int | str, list[str]]:
    """The position that was claimed, or the code of the refusal; and the answers before it."""
    refusals: list[str] = []
    for position, candidate in enumerate(candidates):
        answer = api.put(f"/allocations/{consumer}", claim_body(candidate, generation))
        if answer.status == 204:
            return position, refusals
        if answer.code == "placement.concurrent_update":
            return answer.code, refusals
        assert answer.status in (400, 409), answer.body
        refusals.append(answer.detail)
    return "placement.no_candidate_left", refusals


def by_one_claim(
    api: Client, consumer: str, candidates: list[Any], generation: int | None
) -> tuple[int | str, list[dict[str, Any]]]:
    """The same of one request, with the entries about lost candidates."""
    body = claim_body({}, generation, consumer_uuid=consumer)
    del body["allocations"]
    body["candidates"] = [
        {"allocations": claim_body(candidate)["allocations"]} for candidate in candidates
    ]
    headers = {"OpenStack-API-Version": EXTENDED}
    answer = api("POST", "/claims", body, version=None, headers=headers)
    if answer.status == 200:
        chosen = answer.json["chosen"]
        assert answer.json["allocations"] == body["candidates"][chosen]["allocations"]
        return chosen, answer.json["lost"]
    assert answer.status == 409, answer.body
    return str(answer.code), answer.error.get("lost", [])


def look(api: Client, hosts: list[str], consumers: list[str]) -> list[Any]:
    shown = [api.get(f"/allocations/{consumer}").json for consumer in consumers]
    for host in hosts[:HOSTS]:
        shown.append(api.get(f"/resource_providers/{host}/usages").json)
        shown.append(api.generation(f"/resource_providers/{host}"))
    return shown


@settings(
    max_examples=max(30, settings().max_examples // 2), suppress_health_check=list(HealthCheck)
)
@given(stock=st.lists(_inventories, min_size=HOSTS, max_size=HOSTS), steps=_steps)
def test_a_claim_with_alternatives_ends_as_one_put_after_another(
    both: tuple[Client, Client], stock: list[Any], steps: list[Any]
) -> None:
    hosts = [_uuid() for _ in range(HOSTS + 1)]
    consumers = [_uuid() for _ in range(CONSUMERS)]
    for api in both:
        for host, inventories in zip(hosts, stock, strict=False):
            api.inventory(api.provider(host, uuid=host), **inventories)
    claims, puts = both
    for step, *values in steps:
        if step == "claim":
            number, drawn, off = values
            consumer = consumers[number]
            candidates = [
                {hosts[host]: amounts for host, amounts in candidate.items()} for candidate in drawn
            ]
            held = puts.get(f"/allocations/{consumer}").json
            generation = held.get("consumer_generation")
            if off:
                generation = 1 if generation is None else generation + off
            expected, refusals = by_puts(puts, consumer, candidates, generation)
            outcome, lost = by_one_claim(claims, consumer, candidates, generation)
            assert outcome == expected
            assert [entry["candidate"] for entry in lost] == list(range(len(refusals)))
            for entry, refusal in zip(lost, refusals, strict=True):
                # what does not exist is reported before what is short, by PUT in the order given
                if "free" in entry:
                    assert "would exceed the capacity" in refusal
                    assert f"'{entry['resource_class']}' on resource provider" in refusal
                    assert entry["provider"] in refusal
                    assert entry["free"] < entry["asked"]
        else:
            for api in both:
                if step == "leave":
                    api.delete(f"/allocations/{consumers[values[0]]}")
                else:
                    path = f"/resource_providers/{hosts[values[0]]}"
                    body = {
                        "resource_provider_generation": api.generation(path),
                        "inventories": values[1],
                    }
                    api.put(f"{path}/inventories", body)
        assert look(claims, hosts, consumers) == look(puts, hosts, consumers)
