"""Limits of the names in one request; unknown names below them cost little."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import event

from placement_server import limits
from placement_server.store.dialects.batches import CHUNK
from tests.fixtures.allocations import claim_body

from .wsgi_client import Client

RP = "/resource_providers/4e8e5957-649f-477b-9e5b-f1f75b21c03c"
# Whoever reshapes is a service.
SERVICE = {"X-Roles": "admin,service"}
CONSUMER = "aaaaaaaa-0000-4000-8000-0000000000cc"


@pytest.fixture
def host(api: Client) -> Client:
    """A server with one provider that has 8 VCPU."""
    api.provider("host", uuid=RP.rpartition("/")[2])
    api.inventory(RP, VCPU=8)
    return api


def names(count: int) -> list[str]:
    return [f"CUSTOM_{number}" for number in range(count)]


@cache
def uuids(count: int) -> list[str]:
    return [str(UUID(int=number + 1)) for number in range(count)]


def stock(classes: list[str]) -> dict[str, Any]:
    return {
        "inventories": {name: {"total": 1} for name in classes},
        "resource_provider_generation": 1,
    }


def claims(consumers: list[str], providers: list[str], classes: list[str]) -> dict[str, Any]:
    held = {provider: dict.fromkeys(classes, 1) for provider in providers}
    return {consumer: claim_body(held) for consumer in consumers}


def reshape(stock_of: list[str], allocations: dict[str, Any]) -> dict[str, Any]:
    return {"inventories": {uuid: stock([]) for uuid in stock_of}, "allocations": allocations}


MANY = limits.NAMES + 1
HALF = limits.NAMES // 2 + 1
ONE = uuids(1)
TWO = uuids(2)
TOO_MANY: dict[str, tuple[str, str, Any, str]] = {
    "traits": (
        *("PUT", f"{RP}/traits", {"traits": names(MANY), "resource_provider_generation": 1}),
        "'traits' has 10001 entries, the limit is 10000",
    ),
    "aggregates": (
        *("PUT", f"{RP}/aggregates"),
        {"aggregates": uuids(MANY), "resource_provider_generation": 1},
        "'aggregates' has 10001 entries, the limit is 10000",
    ),
    "inventories": (
        *("PUT", f"{RP}/inventories", stock(names(MANY))),
        "'inventories' has 10001 entries, the limit is 10000",
    ),
    "classes of a claim": (
        *("PUT", f"/allocations/{CONSUMER}", claims(ONE, ONE, names(MANY))[ONE[0]]),
        "'resources' has 10001 entries, the limit is 10000",
    ),
    "providers of a claim": (
        *("PUT", f"/allocations/{CONSUMER}", claims(ONE, uuids(MANY), ["VCPU"])[ONE[0]]),
        "'allocations' has 10001 entries, the limit is 10000",
    ),
    "classes of a claim in two parts": (
        *("PUT", f"/allocations/{CONSUMER}"),
        claim_body(
            {
                TWO[0]: dict.fromkeys(names(HALF), 1),
                TWO[1]: dict.fromkeys(names(2 * HALF)[HALF:], 1),
            }
        ),
        "the body has 10002 resource classes, the limit is 10000",
    ),
    "providers of two consumers": (
        *("POST", "/allocations"),
        claims(ONE, uuids(HALF), ["VCPU"]) | claims(TWO[1:], uuids(2 * HALF)[HALF:], ["VCPU"]),
        "the body has 10002 resource providers, the limit is 10000",
    ),
    "consumers": (
        *("POST", "/allocations", claims(uuids(MANY), [], [])),
        "the body has 10001 entries, the limit is 10000",
    ),
    "providers of a reshape": (
        *("POST", "/reshaper", reshape(uuids(MANY), {})),
        "'inventories' has 10001 entries, the limit is 10000",
    ),
    "consumers of a reshape": (
        *("POST", "/reshaper", reshape(ONE, claims(uuids(MANY), [], []))),
        "'allocations' has 10001 entries, the limit is 10000",
    ),
    "providers of both parts of a reshape": (
        *("POST", "/reshaper"),
        reshape(uuids(HALF), claims(ONE, uuids(2 * HALF)[HALF:], ["VCPU"])),
        "the body has 10002 resource providers, the limit is 10000",
    ),
}
NAMES_ASKED = f"in:{','.join(names(MANY))}"
TOO_MANY_ASKED = {
    f"/traits?name={NAMES_ASKED}": "'name' has 10001 traits, the limit is 10000",
    f"/resource_providers?required={NAMES_ASKED}": (
        "'required' has 10001 traits, the limit is 10000"
    ),
    f"/resource_providers?member_of=!in:{','.join(uuids(MANY))}": (
        "'member_of' has 10001 aggregates, the limit is 10000"
    ),
    f"/resource_providers?resources={','.join(f'{name}:1' for name in names(1001))}": (
        "'resources' has 1001 filters, the limit is 1000"
    ),
    f"/resource_providers?required={','.join(f'!{name}' for name in names(1001))}": (
        "'required' has 1001 filters, the limit is 1000"
    ),
    f"/resource_providers?{'&'.join(f'member_of={uuid}' for uuid in uuids(1001))}": (
        "'member_of' has 1001 filters, the limit is 1000"
    ),
    f"/allocation_candidates?resources_A=VCPU:1&required_A={NAMES_ASKED}": (
        "'required_A' has 10001 traits, the limit is 10000"
    ),
    f"/allocation_candidates?resources=VCPU:1&required={','.join(names(500))}"
    f"&root_required={','.join(names(500))}": "the query has 1001 filters, the limit is 1000",
    "/allocation_candidates?group_policy=none&"
    + "&".join(f"resources_{number}=VCPU:1" for number in range(1001)): (
        "the query has 1001 request groups, the limit is 1000"
    ),
    f"/allocation_candidates?resources_A=VCPU:1&same_subtree={','.join(uuids(MANY))}": (
        "'same_subtree' has 10001 suffixes, the limit is 10000"
    ),
}


@contextmanager
def statements(api: Client) -> Iterator[list[int]]:
    """How many parameters each statement has."""
    counts: list[int] = []

    def on_statement(_c: object, _cursor: object, _text: str, parameters: Any, *_: object) -> None:
        many = parameters if isinstance(parameters, list) else [parameters]
        counts.append(max(len(name) for name in many) if many else 0)

    # On SQLite one engine is a view of the other, and passes its events on.
    engines = api.store.all_engines()[: 1 if api.store.engine.dialect.name == "sqlite" else 2]
    for engine in engines:
        event.listen(engine, "before_cursor_execute", on_statement)
    yield counts
    for engine in engines:
        event.remove(engine, "before_cursor_execute", on_statement)


@pytest.mark.parametrize(("method", "path", "body", "told"), TOO_MANY.values(), ids=TOO_MANY.keys())
def test_a_body_that_names_too_much_is_400_and_costs_no_statement(
    host: Client, method: str, path: str, body: Any, told: str
) -> None:
    with statements(host) as made:
        answer = host(method, path, body, headers=SERVICE)
    assert (answer.status, answer.code) == (400, "placement.undefined_code")
    assert answer.detail.startswith(f"JSON does not validate: {told}")
    assert len(answer.body) < 10_000
    # Where the provider of the path is not there that must be told first.
    assert len(made) <= (path.startswith(RP) and not path.endswith("traits"))


@pytest.mark.parametrize(("query", "told"), TOO_MANY_ASKED.items())
def test_a_query_that_names_too_much_is_400_and_costs_no_statement(
    host: Client, query: str, told: str
) -> None:
    with statements(host) as made:
        answer = host.get(query)
    assert (answer.status, answer.code) == (400, "placement.undefined_code")
    assert answer.detail == f"Invalid query string parameters: {told}"
    assert made == []


MOST = limits.NAMES
UNKNOWN: dict[str, tuple[str, str, Any, int]] = {
    "traits": (
        *("PUT", f"{RP}/traits", {"traits": names(MOST), "resource_provider_generation": 1}),
        400,
    ),
    "inventories": ("PUT", f"{RP}/inventories", stock(names(MOST)), 400),
    "classes": (
        "PUT",
        f"/allocations/{CONSUMER}",
        claim_body({RP: dict.fromkeys(names(MOST), 1)}),
        400,
    ),
    "providers": (
        "PUT",
        f"/allocations/{CONSUMER}",
        claims(ONE, uuids(MOST), ["VCPU"])[ONE[0]],
        400,
    ),
    "consumers": ("POST", "/allocations", claims(uuids(MOST), ONE, ["VCPU"]), 400),
    "providers of a reshape": ("POST", "/reshaper", reshape(uuids(MOST), {}), 400),
    "aggregates": (
        *("PUT", f"{RP}/aggregates"),
        {"aggregates": uuids(MOST), "resource_provider_generation": 1},
        200,
    ),
    "required": ("GET", f"/resource_providers?required=in:{','.join(names(MOST))}", None, 400),
    "resources": (
        *("GET", f"/resource_providers?resources={','.join(f'{n}:1' for n in names(1000))}", None),
        400,
    ),
    "member_of": (
        *("GET", f"/resource_providers?{'&'.join(f'member_of={u}' for u in uuids(1000))}", None),
        200,
    ),
    "member_of in": ("GET", f"/resource_providers?member_of=in:{','.join(uuids(MOST))}", None, 200),
    "names": ("GET", f"/traits?name=in:{','.join(names(MOST))}", None, 200),
    "candidates": (
        *("GET", f"/allocation_candidates?resources=VCPU:1&required=in:{','.join(names(MOST))}"),
        *(None, 400),
    ),
}


@pytest.mark.parametrize(("method", "path", "body", "status"), UNKNOWN.values(), ids=UNKNOWN.keys())
def test_as_many_unknown_names_as_may_be_are_looked_up_in_few_statements(
    host: Client, method: str, path: str, body: Any, status: int
) -> None:
    with statements(host) as made:
        answer = host(method, path, body, headers=SERVICE)
    assert answer.status == status, answer.detail[:1000]
    assert status == 200 or "the limit is" not in answer.detail
    assert max(made, default=0) <= 4 * CHUNK
    assert len(made) < 20


def test_of_many_unknown_traits_a_hundred_are_named_and_few_are_all_named(host: Client) -> None:
    def refused(count: int) -> str:
        traits = {"traits": names(count), "resource_provider_generation": 1}
        return host.put(f"{RP}/traits", traits).detail

    assert refused(3) == "No such trait CUSTOM_0, CUSTOM_1, CUSTOM_2"
    assert refused(100) == f"No such trait {', '.join(sorted(names(100)))}"
    assert refused(5000) == (f"No such trait {', '.join(sorted(names(5000))[:100])} and 4900 more")


def test_names_given_again_count_once(host: Client) -> None:
    again = ",".join(["HW_NUMA_ROOT"] * 20_000)
    assert host.get(f"/resource_providers?required={again}").status == 200
    assert host.get(f"/traits?name=in:{again}").json == {"traits": ["HW_NUMA_ROOT"]}


def test_a_claim_of_consumers_with_new_owners_each_costs_few_statements(host: Client) -> None:
    consumers = uuids(2000)
    host.inventory(RP, VCPU=10_000)

    def owned(owner: str, generation: int | None) -> dict[str, Any]:
        return {
            uuid: claim_body(
                {RP: {"VCPU": 1}}, generation, project_id=f"{owner}-{uuid}", user_id=uuid
            )
            for uuid in consumers
        }

    for owner, generation in (("first", None), ("second", 1), ("second", 2)):
        with statements(host) as made:
            assert host.post("/allocations", owned(owner, generation)).status == 204
        assert len(made) < 20
    assert host.get(f"{RP}/usages").json["usages"] == {"VCPU": 2000}
    usages = f"/usages?project_id=second-{consumers[-1]}&user_id={consumers[-1]}"
    assert host.get(usages).json["usages"]["INSTANCE"] == {"consumer_count": 1, "VCPU": 1}
