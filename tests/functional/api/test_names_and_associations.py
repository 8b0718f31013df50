"""Resource classes, traits and aggregates."""

import pytest

from .wsgi_client import Client

UUID = "4e8e5957-649f-477b-9e5b-f1f75b21c03c"
UNKNOWN = "00000000-0000-0000-0000-00000000dead"
FIRST = "11111111-0000-4000-8000-0000000000aa"
SECOND = "22222222-0000-4000-8000-0000000000aa"
STALE = (
    "Resource provider's generation already changed. Please update the generation and try again."
)


@pytest.fixture
def provider(api: Client) -> str:
    return api.provider("host", uuid=UUID)


# Resource classes


def test_there_are_exactly_21_standard_classes(api: Client) -> None:
    def count() -> int:
        return len(api.get("/resource_classes").json["resource_classes"])

    assert count() == 21
    assert api.put("/resource_classes/CUSTOM_GOLD").status == 201
    assert count() == 22


def test_only_custom_names_can_be_posted_and_only_once(api: Client) -> None:
    for name in ("VCPU", "custom_gold", "CUSTOM_", "CUSTOM_gold", "CUSTOM_" + "A" * 249, ""):
        answer = api.post("/resource_classes", {"name": name})
        assert answer.status == 400
        assert answer.detail.startswith("JSON does not validate: ")
    longest = "CUSTOM_" + "A" * 248
    assert api.post("/resource_classes", {"name": longest}).status == 201
    answer = api.post("/resource_classes", {"name": longest})
    assert (answer.status, answer.code) == (409, "placement.undefined_code")
    assert answer.detail == f"Conflicting resource class already exists: {longest}"


def test_put_renames_before_1_7_and_needs_a_body(api: Client) -> None:
    for name in ("CUSTOM_GOLD", "CUSTOM_IRON"):
        assert api.post("/resource_classes", {"name": name}).status == 201
    old = {"version": "1.6"}
    path = "/resource_classes/CUSTOM_GOLD"
    answer = api.put(path, raw=b"", **old)
    assert answer.status == 400
    assert answer.detail.startswith("Malformed JSON: ")
    for target, name, status, detail in (
        ("CUSTOM_GOLD", "gold", 400, None),
        ("CUSTOM_NOPE", "CUSTOM_A", 404, "No such resource class CUSTOM_NOPE."),
        ("VCPU", "CUSTOM_A", 400, "Cannot update standard resource class VCPU"),
        ("CUSTOM_GOLD", "CUSTOM_IRON", 409, "Resource class already exists: CUSTOM_IRON"),
    ):
        answer = api.put(f"/resource_classes/{target}", {"name": name}, **old)
        assert answer.status == status
        if detail is not None:
            assert answer.detail == detail
    assert api.put(path, {"name": "CUSTOM_GOLD"}, **old).status == 200
    answer = api.put(path, {"name": "CUSTOM_SILVER"}, **old)
    assert answer.status == 200
    assert answer.json == {
        "name": "CUSTOM_SILVER",
        "links": [{"rel": "self", "href": "/resource_classes/CUSTOM_SILVER"}],
    }
    assert api.get(path).status == 404


def test_put_ensures_from_1_7_on_and_ignores_the_body_and_its_type(api: Client) -> None:
    path = "/resource_classes/CUSTOM_GOLD"
    first = api.put(path, raw=b"no json", content_type="text/plain", version="1.7")
    second = api.put(path, version="1.7")
    assert (first.status, second.status) == (201, 204)
    for answer in (first, second):
        assert answer.headers["location"] == f"http://placement.example.org{path}"
    for name, keyword in (("VCPU", "pattern"), ("CUSTOM_" + "A" * 249, "maxLength")):
        answer = api.put(f"/resource_classes/{name}")
        assert answer.status == 400
        assert f"Failed validating '{keyword}'" in answer.detail


def test_a_class_is_in_use_as_soon_as_there_is_inventory_of_it(api: Client, provider: str) -> None:
    assert api.put("/resource_classes/CUSTOM_GOLD").status == 201
    api.inventory(provider, CUSTOM_GOLD=1)
    answer = api.delete("/resource_classes/CUSTOM_GOLD")
    assert (answer.status, answer.code) == (409, "placement.undefined_code")
    assert answer.detail == (
        "Error in delete resource class: Cannot delete resource class CUSTOM_GOLD. "
        "Class is in use in inventory."
    )
    answer = api.delete("/resource_classes/VCPU")
    assert answer.status == 400
    assert answer.detail == (
        "Error in delete resource class: Cannot delete standard resource class VCPU."
    )
    answer = api.delete("/resource_classes/CUSTOM_NOPE")
    assert (answer.status, answer.detail) == (404, "No such resource class CUSTOM_NOPE.")
    assert api.delete(f"{provider}/inventories").status == 204
    assert api.delete("/resource_classes/CUSTOM_GOLD").status == 204


# Traits


def test_put_trait_is_201_then_204_with_a_location_both_times(api: Client) -> None:
    first, second = api.put("/traits/CUSTOM_FAST"), api.put("/traits/CUSTOM_FAST")
    assert (first.status, second.status) == (201, 204)
    for answer in (first, second):
        assert answer.headers["location"] == "http://placement.example.org/traits/CUSTOM_FAST"


@pytest.mark.parametrize(
    "name", ["HW_CPU_X86_SSE", "CUSTOM_", "CUSTOM_fast", "x", "CUSTOM_" + "A" * 249, "CUSTOM_A%0A"]
)
def test_only_custom_traits_can_be_put(api: Client, name: str) -> None:
    answer = api.put(f"/traits/{name}")
    assert answer.status == 400
    assert answer.detail == (
        "The trait is invalid. A valid trait must be no longer than 255 characters, start with "
        'the prefix "CUSTOM_" and use following characters: "A"-"Z", "0"-"9" and "_"'
    )


def test_a_trait_is_shown_by_204_and_deleted_when_no_provider_has_it(
    api: Client, provider: str
) -> None:
    api.traits(provider, "CUSTOM_FAST")
    assert api.get("/traits/CUSTOM_FAST").status == 204
    answer = api.get("/traits/CUSTOM_NOPE")
    assert (answer.status, answer.detail) == (404, "No such trait(s): CUSTOM_NOPE.")
    answer = api.delete("/traits/CUSTOM_FAST")
    assert (answer.status, answer.code) == (409, "placement.undefined_code")
    assert answer.detail == "The trait CUSTOM_FAST is in use by a resource provider."
    answer = api.delete("/traits/HW_NOPE")
    assert (answer.status, answer.detail) == (404, "No such trait(s): HW_NOPE.")
    answer = api.delete("/traits/HW_CPU_X86_SSE")
    assert answer.status == 400
    assert answer.detail == "Cannot delete standard trait HW_CPU_X86_SSE."
    assert api.delete(f"{provider}/traits").status == 204
    assert api.delete("/traits/CUSTOM_FAST").status == 204


def test_traits_are_filtered_by_name_and_by_association(api: Client, provider: str) -> None:
    api.traits(provider, "CUSTOM_FAST", "HW_CPU_X86_SSE")
    assert api.put("/traits/CUSTOM_FREE").status == 201

    def found(query: str) -> set[str]:
        answer = api.get(f"/traits?{query}")
        assert answer.status == 200
        return set(answer.json["traits"])

    every = found("")
    assert len(every) > 300
    assert found("name=in:CUSTOM_FAST,CUSTOM_NOPE,HW_CPU_X86_AVX") == {
        "CUSTOM_FAST",
        "HW_CPU_X86_AVX",
    }
    assert found("name=startswith:CUSTOM_F") == {"CUSTOM_FAST", "CUSTOM_FREE"}
    assert found("name=startswith:CUSTOM%25") == set()
    assert found("name=startswith:custom_f") == set()
    assert found("name=unknown:CUSTOM") == every
    assert found("associated=true") == {"CUSTOM_FAST", "HW_CPU_X86_SSE"}
    assert found("associated=True&name=startswith:CUSTOM") == {"CUSTOM_FAST"}
    assert found("associated=FALSE&name=startswith:CUSTOM") == {"CUSTOM_FREE"}


def test_bad_trait_filters_are_400(api: Client) -> None:
    assert api.get("/traits?name=CUSTOM_FAST").detail == (
        "Badly formatted name parameter. Expected name query string parameter in form: "
        '?name=[in|startswith]:[name1,name2|prefix]. Got: "CUSTOM_FAST"'
    )
    for value in ("yes", "", "1"):
        answer = api.get(f"/traits?associated={value}")
        assert answer.status == 400
        assert answer.detail == ('The query parameter "associated" only accepts "true" or "false"')


def test_provider_traits_bump_the_generation_only_when_the_set_changes(
    api: Client, provider: str
) -> None:
    path = f"{provider}/traits"
    one = {"traits": ["HW_CPU_X86_SSE"], "resource_provider_generation": 0}
    assert api.put(path, one).json == {**one, "resource_provider_generation": 1}
    twice = {"traits": ["HW_CPU_X86_SSE"] * 2, "resource_provider_generation": 1}
    assert api.put(path, twice).json == {**one, "resource_provider_generation": 1}
    assert api.get(path).json == {**one, "resource_provider_generation": 1}
    assert api.delete(path).status == 204
    assert api.delete(path).status == 204
    assert api.generation(provider) == 2
    answer = api.put(path, one)
    assert (answer.status, answer.code) == (409, "placement.concurrent_update")
    assert answer.detail == STALE
    unknown = {"traits": ["CUSTOM_NOPE"], "resource_provider_generation": 2}
    answer = api.put(path, unknown)
    assert (answer.status, answer.detail) == (400, "No such trait CUSTOM_NOPE")


def test_the_generation_is_checked_before_the_names_of_traits(api: Client, provider: str) -> None:
    sent = {"traits": ["CUSTOM_NOPE"], "resource_provider_generation": 7}
    assert api.put(f"{provider}/traits", sent).status == 409


def test_traits_parse_the_body_before_the_provider_and_aggregates_after(api: Client) -> None:
    base = f"/resource_providers/{UNKNOWN}"
    assert api.put(f"{base}/traits", {}).status == 400
    assert api.put(f"{base}/aggregates", {}).status == 404
    for names, status in (([], 404), (["A" * 255], 404), (["A" * 256], 400), ([""], 400)):
        sent = {"traits": names, "resource_provider_generation": 0}
        assert api.put(f"{base}/traits", sent).status == status


# Aggregates


def test_aggregates_before_1_19_neither_check_nor_bump(api: Client, provider: str) -> None:
    path = f"{provider}/aggregates"
    answer = api.put(path, [SECOND, FIRST], version="1.18")
    assert answer.json == {"aggregates": [SECOND, FIRST]}, "echoed in the order asked"
    assert set(api.get(path, version="1.18").json) == {"aggregates"}
    assert api.generation(provider) == 0


def test_aggregates_from_1_19_check_and_always_bump(api: Client, provider: str) -> None:
    path = f"{provider}/aggregates"
    sent = {"aggregates": [SECOND, FIRST], "resource_provider_generation": 0}
    assert api.put(path, sent).json == {**sent, "resource_provider_generation": 1}
    sent["resource_provider_generation"] = 1
    assert api.put(path, sent).json["resource_provider_generation"] == 2
    answer = api.put(path, sent)
    assert (answer.status, answer.code) == (409, "placement.concurrent_update")
    assert answer.detail == STALE
    shown = api.get(path).json
    assert sorted(shown["aggregates"]) == [FIRST, SECOND]
    assert shown["resource_provider_generation"] == 2


def test_the_form_of_the_other_version_is_a_schema_error(api: Client, provider: str) -> None:
    path = f"{provider}/aggregates"
    answer = api.put(path, [FIRST], version="1.19")
    assert "is not of type 'object'" in answer.detail
    sent = {"aggregates": [FIRST], "resource_provider_generation": 0}
    answer = api.put(path, sent, version="1.18")
    assert "is not of type 'array'" in answer.detail
    answer = api.put(path, [FIRST, FIRST], version="1.1")
    assert "has non-unique elements" in answer.detail
    answer = api.put(path, ["x"], version="1.1")
    assert "'x' is not a 'uuid'" in answer.detail
    for wrong, text in (
        ({"aggregates": []}, "'resource_provider_generation' is a required property"),
        ({"resource_provider_generation": 0}, "'aggregates' is a required property"),
        ({**sent, "aggregates": [FIRST, FIRST]}, "has non-unique elements"),
        ({**sent, "more": 1}, "('more' was unexpected)"),
    ):
        answer = api.put(path, wrong)
        assert answer.status == 400
        assert text in answer.detail


def test_aggregates_keep_the_spelling_given(api: Client, provider: str) -> None:
    dashless, upper = FIRST.replace("-", ""), FIRST.upper()
    assert api.put(f"{provider}/aggregates", [dashless, upper, FIRST], version="1.1").status == 200
    assert set(api.get(f"{provider}/aggregates").json["aggregates"]) == {dashless, upper, FIRST}
