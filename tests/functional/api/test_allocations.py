"""Reading and writing allocations: versions, consumers, generations, usages of projects."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.fixtures.allocations import claim_body

from .one_host import EMPTY, RP, RP2, UNKNOWN, A, B, C, entry, held, new_host
from .wsgi_client import Answer, Client

INCOMPLETE = "00000000-0000-0000-0000-000000000000"


@pytest.fixture
def host(api: Client) -> str:
    return new_host(api)


@pytest.mark.parametrize("version", ["1.0", "1.8", "1.12", "1.28", "1.38", "1.39"])
@pytest.mark.parametrize("consumer", [A, "nonsense"])
def test_without_allocations_the_body_is_exactly_that_at_every_version(
    api: Client, version: str, consumer: str
) -> None:
    assert held(api, consumer, version) == EMPTY


@pytest.mark.parametrize(
    ("version", "keys"),
    [
        ("1.0", {"allocations"}),
        ("1.11", {"allocations"}),
        ("1.12", {"allocations", "project_id", "user_id"}),
        ("1.28", {"allocations", "project_id", "user_id", "consumer_generation"}),
        (
            "1.38",
            {"allocations", "project_id", "user_id", "consumer_generation", "consumer_type"},
        ),
    ],
)
def test_with_allocations_the_keys_grow_with_the_version(
    api: Client, host: str, version: str, keys: set[str]
) -> None:
    assert api.put(f"/allocations/{A}", entry()).status == 204
    body = held(api, A, version)
    assert set(body) == keys
    assert body["allocations"] == {RP: {"resources": {"VCPU": 1}, "generation": 2}}


LISTED: dict[str, Any] = {
    "allocations": [{"resource_provider": {"uuid": RP}, "resources": {"VCPU": 1}}],
    "project_id": "p",
    "user_id": "u",
}
KEYED: dict[str, Any] = {
    "allocations": {RP: {"resources": {"VCPU": 1}}},
    "project_id": "p",
    "user_id": "u",
}


def test_the_list_form_is_for_before_1_12_and_the_object_form_for_after(
    api: Client, host: str
) -> None:
    for body, version, status in (
        (LISTED, "1.8", 204),
        (LISTED, "1.11", 204),
        (LISTED, "1.12", 400),
        (KEYED, "1.11", 400),
        (KEYED, "1.12", 204),
        (KEYED, "1.27", 204),
    ):
        assert api.put(f"/allocations/{A}", body, version=version).status == status
    answer = api.put(f"/allocations/{A}", {"allocations": "beta"}, version="1.0")
    assert "JSON does not validate: 'beta' is not of type 'array'" in answer.detail


def test_in_the_list_form_the_later_entry_of_a_provider_counts(api: Client, host: str) -> None:
    entries = [
        {"resource_provider": {"uuid": RP}, "resources": {"VCPU": amount}} for amount in (1, 2)
    ]
    assert api.put(f"/allocations/{A}", {"allocations": entries}, version="1.0").status == 204
    assert held(api, A)["allocations"][RP]["resources"] == {"VCPU": 2}


def test_keys_of_a_later_version_are_schema_errors(api: Client, host: str) -> None:
    for body, version in (
        (LISTED, "1.7"),
        ({**KEYED, "consumer_generation": None}, "1.27"),
        ({**KEYED, "consumer_generation": None, "mappings": {"": [RP]}}, "1.33"),
        ({**KEYED, "consumer_generation": None, "consumer_type": "X"}, "1.37"),
    ):
        answer = api.put(f"/allocations/{A}", body, version=version)
        assert answer.status == 400
        assert "unexpected" in answer.detail
    for body, version, missing in (
        (KEYED, "1.28", "consumer_generation"),
        ({**KEYED, "consumer_generation": None}, "1.38", "consumer_type"),
    ):
        answer = api.put(f"/allocations/{A}", body, version=version)
        assert f"'{missing}' is a required property" in answer.detail
    answer = api.put(f"/allocations/{A}", entry(consumer_type="instance"))
    assert "'instance' does not match '^[A-Z0-9_]+$'" in answer.detail


def test_a_bad_consumer_uuid_is_400_on_put_404_on_delete_and_200_on_get(
    api: Client, host: str
) -> None:
    answer = api.put("/allocations/nonsense", entry())
    assert (answer.status, answer.detail) == (400, "Malformed consumer_uuid: nonsense")
    assert api.put("/allocations/nonsense", raw=b"{").detail == (
        "Malformed consumer_uuid: nonsense"
    )
    answer = api.delete("/allocations/nonsense")
    assert (answer.status, answer.detail) == (404, "No allocations for consumer 'nonsense'")
    assert held(api, "nonsense") == EMPTY


def test_a_dashless_consumer_uuid_is_stored_dashed(api: Client, host: str) -> None:
    assert api.put(f"/allocations/{A.replace('-', '').upper()}", entry()).status == 204
    assert held(api, A)["consumer_generation"] == 1
    assert held(api, A.upper()) == EMPTY
    assert api.delete(f"/allocations/{A.upper()}").status == 404


def test_consumer_generations_are_compared(api: Client, host: str) -> None:
    conflict = "consumer generation conflict - expected"
    for given in (0, 5, 33):
        answer = api.put(f"/allocations/{A}", entry(generation=given))
        assert (answer.status, answer.code) == (409, "placement.concurrent_update")
        assert answer.detail == f"{conflict} null but got {given}"
    assert api.put(f"/allocations/{A}", entry()).status == 204
    assert held(api, A)["consumer_generation"] == 1, "the first write leaves 1"
    answer = api.put(f"/allocations/{A}", entry())
    assert (answer.status, answer.code) == (409, "placement.concurrent_update")
    assert answer.detail == f"{conflict} 1 but got None"
    answer = api.post("/allocations", {A: entry(generation=7)})
    assert answer.detail == f"{conflict} 1 but got 7"
    assert api.put(f"/allocations/{A}", entry(generation=1)).status == 204
    assert held(api, A)["consumer_generation"] == 2


def test_before_1_28_the_last_writer_wins(api: Client, host: str) -> None:
    for _ in range(2):
        assert api.put(f"/allocations/{A}", KEYED, version="1.27").status == 204
    assert held(api, A)["consumer_generation"] == 2


def test_after_a_failed_first_write_null_is_right_again(api: Client, host: str) -> None:
    for body, status in (
        (entry(vcpu=11), 409),
        (claim_body({UNKNOWN: {"VCPU": 1}}), 400),
        (claim_body({RP: {"NOPE": 1}}), 400),
        (claim_body({RP: {"MEMORY_MB": 1}}), 409),
    ):
        assert api.put(f"/allocations/{A}", body).status == status
        assert api.post("/allocations", {A: body}).status == status
    assert api.put(f"/allocations/{A}", entry()).status == 204
    assert held(api, A)["consumer_generation"] == 1


def test_after_its_last_allocation_went_null_is_right_again(api: Client, host: str) -> None:
    gone: list[Callable[[], Answer]] = [
        lambda: api.delete(f"/allocations/{A}"),
        lambda: api.put(f"/allocations/{A}", claim_body({}, 1)),
        lambda: api.post("/allocations", {A: claim_body({}, 1)}),
    ]
    for go in gone:
        assert api.put(f"/allocations/{A}", entry()).status == 204
        assert go().status == 204
        assert held(api, A) == EMPTY
    # Emptying a consumer without allocations is a successful nothing, and leaves no record.
    assert api.put(f"/allocations/{A}", claim_body({})).status == 204
    assert api.put(f"/allocations/{A}", entry()).status == 204


def test_empty_allocations_are_legal_in_post_from_1_13_and_in_put_from_1_28(
    api: Client, host: str
) -> None:
    empty = {"allocations": {}, "project_id": "p", "user_id": "u"}
    assert api.post("/allocations", {A: empty}, version="1.13").status == 204
    answer = api.put(f"/allocations/{A}", empty, version="1.27")
    assert answer.status == 400
    assert "should be non-empty" in answer.detail
    newer = {**empty, "consumer_generation": None}
    assert api.put(f"/allocations/{A}", newer, version="1.28").status == 204


def test_provider_generations_rise_as_the_table_says(api: Client, host: str) -> None:
    second = api.provider("second", uuid=RP2)
    api.inventory(second, VCPU=10)

    def generations() -> tuple[int, int]:
        return api.generation(host), api.generation(second)

    assert generations() == (1, 1)
    both = claim_body({RP: {"VCPU": 1, "DISK_GB": 1}, RP2: {"VCPU": 1}})
    assert api.post("/allocations", {A: both, B: both}).status == 204
    assert generations() == (2, 2), "once per request"
    assert api.put(f"/allocations/{A}", entry(generation=1)).status == 204
    assert generations() == (3, 2), "not for the provider that is no longer named"
    assert api.delete(f"/allocations/{A}").status == 204
    assert generations() == (3, 2), "not by DELETE"
    assert api.put(f"/allocations/{B}", claim_body({}, 1)).status == 204
    assert generations() == (4, 3), "emptied"


def test_before_1_38_a_write_leaves_the_type_alone_and_null_is_shown_as_unknown(
    api: Client, host: str
) -> None:
    assert api.put(f"/allocations/{A}", entry()).status == 204
    older = {**KEYED, "consumer_generation": 1}
    assert api.put(f"/allocations/{A}", older, version="1.37").status == 204
    assert held(api, A)["consumer_type"] == "INSTANCE"
    assert api.put(f"/allocations/{B}", {**older, "consumer_generation": None}, version="1.37")
    assert held(api, B)["consumer_type"] == "unknown"
    assert api.put(f"/allocations/{A}", entry(generation=2, consumer_type="OTHER")).status == 204
    assert held(api, A)["consumer_type"] == "OTHER"


def test_before_1_8_the_configured_ids_stand_for_project_and_user(api: Client, host: str) -> None:
    assert api.put(f"/allocations/{A}", entry()).status == 204
    listed = {"allocations": LISTED["allocations"]}
    assert api.put(f"/allocations/{A}", listed, version="1.7").status == 204
    body = held(api, A)
    assert (body["project_id"], body["user_id"]) == (INCOMPLETE, INCOMPLETE)


def test_a_write_may_change_project_and_user(api: Client, host: str) -> None:
    assert api.put(f"/allocations/{A}", entry()).status == 204
    changed = entry(generation=1, project_id="p2", user_id="u2")
    assert api.put(f"/allocations/{A}", changed).status == 204
    body = held(api, A)
    assert (body["project_id"], body["user_id"], body["consumer_generation"]) == ("p2", "u2", 2)


def test_what_get_shows_may_be_put_back(api: Client, host: str) -> None:
    assert api.put(f"/allocations/{A}", entry()).status == 204
    assert api.put(f"/allocations/{A}", held(api, A)).status == 204


def test_mappings_may_have_the_empty_key_but_not_be_empty(api: Client, host: str) -> None:
    answer = api.put(f"/allocations/{A}", entry(mappings={}))
    assert "should be non-empty" in answer.detail
    assert api.put(f"/allocations/{A}", entry(mappings={"": [RP]})).status == 204


def test_provider_allocations_tell_consumers_and_their_generation_from_1_28(
    api: Client, host: str
) -> None:
    assert api.put(f"/allocations/{A}", entry(vcpu=2)).status == 204
    path = f"{host}/allocations"
    assert api.get(path, version="1.27").json == {
        "allocations": {A: {"resources": {"VCPU": 2}}},
        "resource_provider_generation": 2,
    }
    assert api.get(path).json["allocations"] == {
        A: {"resources": {"VCPU": 2}, "consumer_generation": 1}
    }
    answer = api.get(f"/resource_providers/{UNKNOWN}/allocations")
    assert answer.status == 404
    assert answer.detail == (
        f"Resource provider '{UNKNOWN}' not found: No resource provider with uuid {UNKNOWN} found"
    )


def test_project_usages_nest_by_type_from_1_38(api: Client, host: str) -> None:
    def usages(query: str, version: str = "1.39") -> Any:
        answer = api.get(f"/usages?{query}", version=version)
        assert answer.status == 200, answer.body
        return answer.json["usages"]

    writes = [
        (A, entry(vcpu=2), "1.39"),
        (B, claim_body({RP: {"VCPU": 1, "DISK_GB": 3}}, user_id="other"), "1.39"),
        (C, {**KEYED, "project_id": "project", "consumer_generation": None}, "1.37"),
    ]
    for consumer, body, version in writes:
        assert api.put(f"/allocations/{consumer}", body, version=version).status == 204
    assert usages("project_id=project", "1.37") == {"VCPU": 4, "DISK_GB": 3}
    assert usages("project_id=project&user_id=user", "1.9") == {"VCPU": 2}
    assert usages("project_id=nobody", "1.9") == {}
    typed = {"consumer_count": 2, "VCPU": 3, "DISK_GB": 3}
    untyped = {"consumer_count": 1, "VCPU": 1}
    assert usages("project_id=project") == {"INSTANCE": typed, "unknown": untyped}
    assert usages("project_id=project&consumer_type=INSTANCE") == {"INSTANCE": typed}
    assert usages("project_id=project&consumer_type=unknown") == {"unknown": untyped}
    assert usages("project_id=project&consumer_type=all") == {
        "all": {"consumer_count": 3, "VCPU": 4, "DISK_GB": 3}
    }
    for query in (
        "project_id=project&consumer_type=NOPE",
        "project_id=project&consumer_type=allx",
        "project_id=nobody",
        "project_id=nobody&consumer_type=all",
        "project_id=nobody&consumer_type=unknown",
    ):
        assert usages(query) == {}
    assert api.get("/usages?project_id=p&consumer_type=lower").status == 400
    assert api.get("/usages?project_id=p&consumer_type=X", version="1.37").status == 400
