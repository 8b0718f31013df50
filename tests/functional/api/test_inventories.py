"""Inventories and usages of a provider."""

from typing import Any

import pytest

from .wsgi_client import Client

UUID = "4e8e5957-649f-477b-9e5b-f1f75b21c03c"
UNKNOWN = "00000000-0000-0000-0000-00000000dead"
CONSUMER = "aaaaaaaa-0000-4000-8000-0000000000cc"

RECORD = {
    "total": 8,
    "reserved": 0,
    "min_unit": 1,
    "max_unit": 2147483647,
    "step_size": 1,
    "allocation_ratio": 1.0,
}


@pytest.fixture
def provider(api: Client) -> str:
    return api.provider("host", uuid=UUID)


def body(generation: int, **more: Any) -> dict[str, Any]:
    return {"resource_provider_generation": generation, **more}


def test_absent_fields_get_the_defaults_and_not_the_values_before(
    api: Client, provider: str
) -> None:
    inventory = {"VCPU": {**RECORD, "reserved": 2, "allocation_ratio": 16.0}}
    answer = api.put(f"{provider}/inventories", body(0, inventories=inventory))
    assert answer.json == {"resource_provider_generation": 1, "inventories": inventory}
    assert api.get(f"{provider}/inventories").json == answer.json
    answer = api.put(f"{provider}/inventories", body(1, inventories={"VCPU": {"total": 8}}))
    assert answer.json["inventories"] == {"VCPU": RECORD}
    answer = api.put(f"{provider}/inventories/VCPU", body(2, total=8))
    assert answer.json == {**RECORD, "resource_provider_generation": 3}
    assert api.get(f"{provider}/inventories/VCPU").json == answer.json


def test_post_adds_one_and_says_where(api: Client, provider: str) -> None:
    answer = api.post(f"{provider}/inventories", {"resource_class": "VCPU", "total": 8})
    assert answer.status == 201
    assert answer.json == {**RECORD, "resource_provider_generation": 1}
    assert answer.headers["location"] == (
        f"http://placement.example.org{provider}/inventories/VCPU"
    )


def test_post_ignores_a_stale_generation_and_put_does_not(api: Client, provider: str) -> None:
    stale = body(99, resource_class="VCPU", total=1)
    assert api.post(f"{provider}/inventories", stale).status == 201
    for path, sent in (
        ("/inventories", body(99, inventories={})),
        ("/inventories/VCPU", body(99, total=1)),
    ):
        answer = api.put(f"{provider}{path}", sent)
        assert answer.status == 409
        assert answer.code == "placement.concurrent_update"
        assert answer.detail == "resource provider generation conflict"
    # A generation inside a record of the bulk form is accepted and ignored.
    inner = {"VCPU": {"total": 1, "resource_provider_generation": 99}}
    assert api.put(f"{provider}/inventories", body(1, inventories=inner)).status == 200


def test_a_duplicate_inventory_is_an_update_conflict(api: Client, provider: str) -> None:
    sent = {"resource_class": "VCPU", "total": 1}
    assert api.post(f"{provider}/inventories", sent).status == 201
    answer = api.post(f"{provider}/inventories", sent)
    assert answer.status == 409
    assert answer.code == "placement.concurrent_update"
    assert answer.detail.startswith("Update conflict: ")
    assert api.generation(provider) == 1


def test_put_of_one_is_404_for_an_unknown_class_and_400_for_one_without_a_record(
    api: Client, provider: str
) -> None:
    answer = api.put(f"{provider}/inventories/NOPE", body(0, total=1))
    assert (answer.status, answer.detail) == (404, "No such resource class NOPE.")
    answer = api.put(f"{provider}/inventories/VCPU", body(0, total=1))
    assert answer.status == 400
    assert answer.detail == (
        f"No inventory record with resource class for resource provider {UUID}: "
        "No inventory of class VCPU found."
    )


def test_put_of_all_is_400_for_an_unknown_class(api: Client, provider: str) -> None:
    answer = api.put(f"{provider}/inventories", body(0, inventories={"NOPE": {"total": 1}}))
    assert answer.status == 400
    assert answer.detail == (
        f"Unknown resource class in inventory for resource provider {UUID}: "
        "No such resource class NOPE."
    )
    answer = api.post(f"{provider}/inventories", {"resource_class": "NOPE", "total": 1})
    assert answer.status == 400
    assert answer.detail == (
        f"Unable to create inventory for resource provider {UUID}: No such resource class NOPE."
    )


@pytest.mark.parametrize("record", [[], {}, {"total": "x"}, {"total": True}, None, "x"])
def test_a_malformed_record_under_a_key_that_names_no_class_is_400(
    api: Client, provider: str, record: Any
) -> None:
    answer = api.put(f"{provider}/inventories", body(0, inventories={"no class": record}))
    assert answer.status == 400
    assert api.generation(provider) == 0


def test_the_codes_of_inventory_in_use_differ_for_one_and_for_all(
    api: Client, provider: str
) -> None:
    api.inventory(provider, DISK_GB=8, VCPU=8, MEMORY_MB=8)
    assert api.claim(CONSUMER, held={provider: {"DISK_GB": 1, "VCPU": 1}}).status == 204
    generation = api.generation(provider)
    answer = api.delete(f"{provider}/inventories/VCPU")
    assert (answer.status, answer.code) == (409, "placement.concurrent_update")
    assert answer.detail == (
        "Unable to delete inventory of class VCPU: "
        f"Inventory for 'VCPU' on resource provider '{UUID}' in use."
    )
    # By the ids of the classes, not by name.
    in_use = f"Inventory for 'VCPU, DISK_GB' on resource provider '{UUID}' in use."
    every = api.delete(f"{provider}/inventories")
    assert (every.status, every.code) == (409, "placement.inventory.inuse")
    assert every.detail == in_use
    replaced = api.put(f"{provider}/inventories", body(generation, inventories={}))
    assert (replaced.status, replaced.code) == (409, "placement.inventory.inuse")
    assert replaced.detail == f"update conflict: {in_use}"
    assert api.generation(provider) == generation
    assert api.delete(f"{provider}/inventories/MEMORY_MB").status == 204


@pytest.mark.parametrize(
    ("version", "record", "refused"),
    [
        ("1.25", {"total": 4, "reserved": 4}, "greater than or equal to total"),
        ("1.26", {"total": 4, "reserved": 4}, None),
        ("1.26", {"total": 4, "reserved": 5}, "greater than total"),
        ("1.25", {"total": 4, "reserved": 5}, "greater than or equal to total"),
        ("1.25", {"total": 4, "allocation_ratio": 0}, "greater than or equal to total"),
        ("1.26", {"total": 4, "allocation_ratio": 0}, None),
        ("1.26", {"total": 4, "allocation_ratio": -1.0}, "greater than total"),
        ("1.25", {"total": 1, "allocation_ratio": 0.5}, "greater than or equal to total"),
        ("1.26", {"total": 1, "reserved": 2, "allocation_ratio": 0.5}, None),
    ],
)
def test_reserved_is_checked_by_the_sign_of_the_capacity(
    api: Client, provider: str, version: str, record: dict[str, Any], refused: str | None
) -> None:
    posted = api.post(
        f"{provider}/inventories", {**record, "resource_class": "VCPU"}, version=version
    )
    generation = api.generation(provider)
    put = api.put(
        f"{provider}/inventories", body(generation, inventories={"VCPU": record}), version=version
    )
    if refused is None:
        assert (posted.status, put.status) == (201, 200)
        return
    reason = f"Invalid inventory for 'VCPU' on resource provider '{UUID}'. The reserved value is "
    assert (posted.status, put.status) == (400, 400)
    assert posted.detail == (
        f"Unable to create inventory for resource provider {UUID}: {reason}{refused}."
    )
    assert put.detail == (
        f"Unable to update inventory for resource provider {UUID}: {reason}{refused}."
    )
    # Checked before the existence of the record.
    answer = api.put(f"{provider}/inventories/VCPU", body(generation, **record), version=version)
    assert answer.detail == put.detail


def test_an_inventory_may_be_lowered_below_its_usage(api: Client, provider: str) -> None:
    api.inventory(provider, VCPU=8)
    assert api.claim(CONSUMER, held={provider: {"VCPU": 8}}).status == 204
    generation = api.generation(provider)
    assert api.put(f"{provider}/inventories/VCPU", body(generation, total=4)).status == 200
    assert api.get(f"{provider}/usages").json["usages"] == {"VCPU": 8}


@pytest.mark.parametrize("field", ["total", "min_unit", "max_unit", "step_size"])
@pytest.mark.parametrize("value", [0, -1, 2147483648, 1.5, "1", True, None])
def test_numbers_out_of_range_are_schema_errors(
    api: Client, provider: str, field: str, value: Any
) -> None:
    answer = api.put(
        f"{provider}/inventories", body(0, inventories={"VCPU": {"total": 1, field: value}})
    )
    assert answer.status == 400
    assert answer.detail.startswith("JSON does not validate: ")
    assert api.generation(provider) == 0


def test_whole_floats_are_echoed_as_given(api: Client, provider: str) -> None:
    record = {"total": 5.0, "reserved": 1.0}
    answer = api.put(f"{provider}/inventories", body(0, inventories={"VCPU": record}))
    assert b'"total":5.0' in answer.body
    assert b'"total":5,' in api.get(f"{provider}/inventories").body


def test_every_bulk_write_bumps_the_generation_also_when_nothing_changes(
    api: Client, provider: str
) -> None:
    path = f"{provider}/inventories"
    assert api.put(path, body(0, inventories={})).status == 200
    assert api.put(path, body(1, inventories={"VCPU": {"total": 1}})).status == 200
    assert api.put(path, body(2, inventories={"VCPU": {"total": 1}})).status == 200
    assert api.delete(path).status == 204
    assert api.delete(path).status == 204
    assert api.generation(provider) == 5


def test_what_is_not_there_is_not_found(api: Client, provider: str) -> None:
    answer = api.get(f"{provider}/inventories/VCPU")
    assert (answer.status, answer.detail) == (404, f"No inventory of class VCPU for {UUID}")
    answer = api.get(f"{provider}/inventories/NOPE")
    assert (answer.status, answer.detail) == (404, f"No inventory of class NOPE for {UUID}")
    for name in ("VCPU", "NOPE"):
        answer = api.delete(f"{provider}/inventories/{name}")
        assert answer.status == 404
        assert answer.detail.startswith(f"No inventory of class {name} found for delete: ")


def test_an_unknown_provider_wins_over_a_bad_body(api: Client) -> None:
    path = f"/resource_providers/{UNKNOWN}/inventories"
    for answer in (
        api.put(path, raw=b"{"),
        api.post(path, {}),
        api.put(f"{path}/VCPU", []),
        api.put(path, body(0, inventories={"no class": []})),
    ):
        assert answer.status == 404
        assert answer.detail == f"No resource provider with uuid {UNKNOWN} found"


def test_provider_usages_have_a_key_for_every_inventory_class(api: Client, provider: str) -> None:
    assert api.get(f"{provider}/usages").json == {
        "resource_provider_generation": 0,
        "usages": {},
    }
    api.inventory(provider, VCPU=8, DISK_GB=8)
    assert api.claim(CONSUMER, held={provider: {"VCPU": 3}}).status == 204
    answer = api.get(f"{provider}/usages")
    assert answer.json == {
        "resource_provider_generation": 2,
        "usages": {"VCPU": 3, "DISK_GB": 0},
    }


def test_creating_two_inventories_and_three_allocations_leaves_generation_5(
    api: Client, provider: str
) -> None:
    for name in ("VCPU", "DISK_GB"):
        sent = {"resource_class": name, "total": 8}
        assert api.post(f"{provider}/inventories", sent).status == 201
    for digit in "abc":
        consumer = CONSUMER.replace("a", digit)
        assert api.claim(consumer, held={provider: {"VCPU": 1, "DISK_GB": 1}}).status == 204
    assert api.generation(provider) == 5


def test_a_ratio_larger_than_any_machine_integer_is_answered_as_it_was_sent(
    api: Client, provider: str
) -> None:
    ratio = 10**20
    record = {"total": 1, "allocation_ratio": ratio}
    answer = api.put(f"{provider}/inventories", body(0, inventories={"VCPU": record}))
    assert answer.json["inventories"]["VCPU"]["allocation_ratio"] == pytest.approx(ratio)
    answer = api.put(f"{provider}/inventories/VCPU", body(1, **record))
    assert (answer.status, answer.json["allocation_ratio"]) == (200, ratio)
    shown = api.get(f"{provider}/inventories/VCPU").json["allocation_ratio"]
    assert shown == pytest.approx(ratio)
