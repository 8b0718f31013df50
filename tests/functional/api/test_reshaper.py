"""POST /reshaper."""

from typing import Any

import pytest

from tests.fixtures.allocations import claim_body

from .wsgi_client import Client

PARENT = "4e8e5957-649f-477b-9e5b-f1f75b21c03c"
CHILD = "9d3f0f5f-7a59-4a0b-9a4a-2f7a1a6f0b11"
UNKNOWN = "00000000-0000-0000-0000-00000000dead"
CONSUMERS = [f"{digit * 8}-0000-4000-8000-0000000000cc" for digit in "abc"]
A, B, C = CONSUMERS


@pytest.fixture
def tree(api: Client) -> None:
    """Three consumers of VCPU and disk on the parent, which is at 5; nothing on its child.

    parent  VCPU 8, DISK_GB 100   <- A, B, C: 1 VCPU and 10 DISK_GB each
      child
    """
    path = api.provider("parent", uuid=PARENT)
    api.provider("child", uuid=CHILD, parent_provider_uuid=PARENT)
    for name, total in (("VCPU", 8), ("DISK_GB", 100)):
        sent = {"resource_class": name, "total": total}
        assert api.post(f"{path}/inventories", sent).status == 201
    for consumer in CONSUMERS:
        assert api.claim(consumer, held={PARENT: {"VCPU": 1, "DISK_GB": 10}}).status == 204


def generations(api: Client) -> tuple[int, int]:
    return (
        api.generation(f"/resource_providers/{PARENT}"),
        api.generation(f"/resource_providers/{CHILD}"),
    )


def reshape(
    parent: int,
    parent_stock: dict[str, Any],
    child: int,
    child_stock: dict[str, Any],
    allocations: dict[str, Any],
) -> dict[str, Any]:
    def inventories(generation: int, stock: dict[str, Any]) -> dict[str, Any]:
        records = {name: {"total": total} for name, total in stock.items()}
        return {"resource_provider_generation": generation, "inventories": records}

    return {
        "inventories": {
            PARENT: inventories(parent, parent_stock),
            CHILD: inventories(child, child_stock),
        },
        "allocations": allocations,
    }


def moved_down(generation: int) -> dict[str, Any]:
    return {
        consumer: claim_body({PARENT: {"DISK_GB": 10}, CHILD: {"VCPU": 1}}, generation)
        for consumer in CONSUMERS
    }


@pytest.mark.usefixtures("tree")
def test_generations_go_5_0_then_8_3_then_11_5(api: Client) -> None:
    assert generations(api) == (5, 0)
    down = reshape(5, {"DISK_GB": 100}, 0, {"VCPU": 8}, moved_down(1))
    assert api.post("/reshaper", down).status == 204
    assert generations(api) == (8, 3)
    back = {consumer: claim_body({PARENT: {"DISK_GB": 10, "VCPU": 1}}, 2) for consumer in (A, B)}
    back[C] = claim_body({}, 2)
    up = reshape(8, {"DISK_GB": 100, "VCPU": 8}, 3, {}, back)
    assert api.post("/reshaper", up).status == 204
    assert generations(api) == (11, 5)
    assert api.get(f"/allocations/{A}").json["consumer_generation"] == 3
    assert api.get(f"/allocations/{C}").json == {"allocations": {}}
    usages = api.get(f"/resource_providers/{PARENT}/usages").json["usages"]
    assert usages == {"VCPU": 2, "DISK_GB": 20}


@pytest.mark.usefixtures("tree")
def test_both_keys_are_needed_and_only_allocations_may_be_empty(api: Client) -> None:
    body = reshape(5, {"VCPU": 8, "DISK_GB": 100}, 0, {}, {})
    for missing in ("inventories", "allocations"):
        sent = {key: value for key, value in body.items() if key != missing}
        assert f"'{missing}' is a required property" in api.post("/reshaper", sent).detail
    answer = api.post("/reshaper", {"inventories": {}, "allocations": {}})
    assert "should be non-empty" in answer.detail
    assert api.post("/reshaper", body).status == 204
    assert generations(api) == (7, 1), "+2 with inventories, +1 with none"


@pytest.mark.usefixtures("tree")
def test_an_unknown_provider_has_a_code_in_inventories_and_none_in_allocations(
    api: Client,
) -> None:
    body = reshape(5, {"VCPU": 8, "DISK_GB": 100}, 0, {}, {})
    body["inventories"][UNKNOWN] = body["inventories"].pop(CHILD)
    answer = api.post("/reshaper", body)
    assert (answer.status, answer.code) == (400, "placement.resource_provider.not_found")
    assert answer.detail == (
        f"Resource provider {UNKNOWN} in inventories not found: "
        f"No resource provider with uuid {UNKNOWN} found"
    )
    allocations = {A: claim_body({UNKNOWN: {"VCPU": 1}}, 1)}
    answer = api.post("/reshaper", reshape(5, {"VCPU": 8, "DISK_GB": 100}, 0, {}, allocations))
    assert (answer.status, answer.code) == (400, "placement.undefined_code")
    assert answer.detail == f"Allocation for resource provider '{UNKNOWN}' that does not exist."


@pytest.mark.usefixtures("tree")
def test_a_failed_reshape_changes_nothing(api: Client) -> None:
    stock = {"VCPU": 8, "DISK_GB": 100}
    too_much = {A: claim_body({CHILD: {"VCPU": 9}}, 1)}
    unknown_class = reshape(5, stock, 0, {"NOPE": 1}, {})
    failures = [
        (
            reshape(4, stock, 0, {}, {}),
            409,
            "placement.concurrent_update",
            f"resource provider generation conflict for provider {PARENT}: actual: 5, given: 4",
        ),
        (
            reshape(5, {"DISK_GB": 100}, 0, {"VCPU": 8}, moved_down(7)),
            409,
            "placement.concurrent_update",
            "consumer generation conflict - expected 1 but got 7",
        ),
        (
            unknown_class,
            400,
            "placement.undefined_code",
            "malformed reshaper data: No such resource class NOPE.",
        ),
        (
            reshape(5, stock, 0, {"VCPU": 8}, too_much),
            409,
            "placement.undefined_code",
            "Unable to allocate inventory: Unable to create allocation for 'VCPU' on resource "
            f"provider '{CHILD}'. The requested amount would exceed the capacity.",
        ),
        (
            reshape(5, {"DISK_GB": 100}, 0, {"VCPU": 8}, {}),
            409,
            "placement.inventory.inuse",
            f"update conflict: Inventory for 'VCPU' on resource provider '{PARENT}' in use.",
        ),
    ]
    before = [api.get(f"/allocations/{consumer}").json for consumer in CONSUMERS]
    for body, status, code, detail in failures:
        answer = api.post("/reshaper", body)
        assert (answer.status, answer.code, answer.detail) == (status, code, detail)
        assert generations(api) == (5, 0)
        assert [api.get(f"/allocations/{consumer}").json for consumer in CONSUMERS] == before
        assert api.get(f"/resource_providers/{CHILD}/inventories").json["inventories"] == {}


@pytest.mark.usefixtures("tree")
def test_reserved_is_not_compared_with_the_total(api: Client) -> None:
    body = reshape(5, {"VCPU": 8, "DISK_GB": 100}, 0, {}, {})
    body["inventories"][CHILD]["inventories"] = {"VCPU": {"total": 1, "reserved": 5}}
    assert api.post("/reshaper", body).status == 204


@pytest.mark.usefixtures("tree")
def test_bodies_follow_the_version_of_post_allocations(api: Client) -> None:
    consumer = claim_body({PARENT: {"VCPU": 1}}, 1)
    typeless = {key: value for key, value in consumer.items() if key != "consumer_type"}
    stock = {"VCPU": 8, "DISK_GB": 100}
    mapped = {**typeless, "mappings": {"": [PARENT]}}
    for sent, version, status in (
        (consumer, "1.37", 400),
        (typeless, "1.38", 400),
        (mapped, "1.33", 400),
        (mapped, "1.34", 204),
    ):
        body = reshape(5, stock, 0, {}, {A: sent})
        assert api.post("/reshaper", body, version=version).status == status
