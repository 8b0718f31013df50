"""Resource providers: representation, creation, trees, filters, deletion."""

from email.utils import parsedate_to_datetime

import pytest

from .wsgi_client import Client

RP = "/resource_providers"
UUID = "4e8e5957-649f-477b-9e5b-f1f75b21c03c"
OTHER = "9d3f0f5f-7a59-4a0b-9a4a-2f7a1a6f0b11"
THIRD = "5a1d1d3f-55c5-4d53-8e2f-9f0a1f2b3c4d"
UNKNOWN = "00000000-0000-0000-0000-00000000dead"
AGGREGATE = "11111111-0000-4000-8000-0000000000aa"


def names(api: Client, query: str, version: str = "1.39") -> set[str]:
    answer = api.get(f"{RP}?{query}", version=version)
    assert answer.status == 200, answer.body
    return {provider["name"] for provider in answer.json["resource_providers"]}


@pytest.mark.parametrize(
    ("version", "rels"),
    [
        ("1.0", ["self", "inventories", "usages"]),
        ("1.1", ["self", "inventories", "usages", "aggregates"]),
        ("1.5", ["self", "inventories", "usages", "aggregates"]),
        ("1.6", ["self", "inventories", "usages", "aggregates", "traits"]),
        ("1.10", ["self", "inventories", "usages", "aggregates", "traits"]),
        ("1.11", ["self", "inventories", "usages", "aggregates", "traits", "allocations"]),
        ("1.39", ["self", "inventories", "usages", "aggregates", "traits", "allocations"]),
    ],
)
def test_links_grow_with_the_version(api: Client, version: str, rels: list[str]) -> None:
    provider = api.provider(uuid=UUID)
    links = api.get(provider, version=version).json["links"]
    # "self" and so many more: 3, 4, 5 and 6 in all from 1.0, 1.1, 1.6 and 1.11.
    assert [link["rel"] for link in links] == rels
    assert [link["href"] for link in links] == [
        provider if rel == "self" else f"{provider}/{rel}" for rel in rels
    ]


def test_a_provider_has_4_keys_before_1_14_and_6_after(api: Client) -> None:
    provider = api.provider(uuid=UUID)
    assert set(api.get(provider, version="1.13").json) == {"uuid", "name", "generation", "links"}
    shown = api.get(provider, version="1.14").json
    assert len(shown) == 6
    assert shown["parent_provider_uuid"] is None
    assert shown["root_provider_uuid"] == UUID


def test_post_is_201_without_a_body_before_1_20_and_200_with_one_after(api: Client) -> None:
    old = api.post(RP, {"name": "old", "uuid": UUID}, version="1.19")
    new = api.post(RP, {"name": "new", "uuid": OTHER}, version="1.20")
    assert (old.status, old.body) == (201, b"")
    assert new.status == 200
    assert new.json["uuid"] == OTHER
    assert new.json["generation"] == 0
    assert old.headers["location"] == f"http://placement.example.org{RP}/{UUID}"
    assert new.headers["location"] == f"http://placement.example.org{RP}/{OTHER}"
    assert "last-modified" in new.headers
    assert "last-modified" not in old.headers


def test_put_sends_no_location_and_does_not_touch_the_generation(api: Client) -> None:
    provider = api.provider()
    answer = api.put(provider, {"name": "renamed"})
    assert answer.status == 200
    assert answer.json["name"] == "renamed"
    assert answer.json["generation"] == 0
    assert "location" not in answer.headers
    assert parsedate_to_datetime(answer.headers["last-modified"])


def test_a_uuid_in_another_spelling_is_stored_dashed_and_reported_so(api: Client) -> None:
    for number, spelling in enumerate((UUID.replace("-", ""), UUID.upper(), f"{{{UUID}}}")):
        answer = api.post(RP, {"name": f"p{number}", "uuid": spelling})
        if number == 0:
            assert answer.json["uuid"] == UUID
        else:
            assert answer.status == 409
            assert answer.detail == (f"Conflicting resource provider uuid: {UUID} already exists.")


def test_what_is_taken_is_told_and_on_put_without_its_kind(api: Client) -> None:
    api.provider("taken", uuid=UUID)
    other = api.provider("other")
    for answer, detail in (
        (api.post(RP, {"name": "taken"}), "name: taken"),
        (api.post(RP, {"name": "x", "uuid": UUID}), f"uuid: {UUID}"),
        (api.put(other, {"name": "taken"}), "taken"),
    ):
        assert answer.status == 409
        assert answer.code == "placement.duplicate_name"
        assert answer.detail == f"Conflicting resource provider {detail} already exists."
    both = api.post(RP, {"name": "taken", "uuid": UUID})
    assert both.status == 409
    assert both.code == "placement.duplicate_name"


def test_the_parent_is_unknown_to_bodies_before_1_14_and_the_root_always(api: Client) -> None:
    provider = api.provider()
    for answer in (
        api.post(RP, {"name": "x", "parent_provider_uuid": UUID}, version="1.13"),
        api.put(provider, {"name": "x", "parent_provider_uuid": UUID}, version="1.13"),
        api.post(RP, {"name": "x", "root_provider_uuid": UUID}),
        api.put(provider, {"name": "x", "root_provider_uuid": UUID}),
        api.put(provider, {"name": "x", "uuid": UUID}),
    ):
        assert answer.status == 400
        assert "Additional properties are not allowed" in answer.detail


def test_a_blank_name_filters_nothing(api: Client) -> None:
    api.provider("a")
    api.provider("b")
    assert names(api, "name=") == {"a", "b"}
    assert names(api, "name=a") == {"a"}
    assert names(api, "name=A") == set()


@pytest.mark.parametrize("parameter", ["uuid", "in_tree"])
def test_uuid_filters_want_dashes_and_an_unknown_one_finds_nothing(
    api: Client, parameter: str
) -> None:
    api.provider("a", uuid=UUID)
    assert names(api, f"{parameter}={UUID}") == {"a"}
    assert names(api, f"{parameter}={UNKNOWN}") == set()
    for bad in (UUID.replace("-", ""), "nonsense", ""):
        answer = api.get(f"{RP}?{parameter}={bad}")
        assert answer.status == 400
        assert "is not a 'uuid'" in answer.detail


def test_filters_look_at_the_provider_itself_without_trees_and_sharing(api: Client) -> None:
    root = api.provider("root", uuid=UUID)
    child = api.provider("child", parent_provider_uuid=UUID)
    pool = api.provider("pool")
    api.inventory(child, VCPU=4)
    api.inventory(pool, DISK_GB=4)
    api.traits(root, "CUSTOM_FAST")
    api.traits(pool, "MISC_SHARES_VIA_AGGREGATE")
    api.aggregates(root, AGGREGATE)
    api.aggregates(pool, AGGREGATE)
    assert names(api, "resources=VCPU:1") == {"child"}
    assert names(api, "resources=VCPU:1,DISK_GB:1") == set()
    assert names(api, "required=CUSTOM_FAST") == {"root"}
    assert names(api, f"member_of={AGGREGATE}") == {"root", "pool"}
    assert names(api, f"in_tree={UUID}") == {"root", "child"}


def test_unknown_traits_and_classes_are_400_and_unknown_aggregates_no_match(api: Client) -> None:
    api.provider("a")
    answer = api.get(f"{RP}?required=CUSTOM_NOPE")
    assert answer.status == 400
    assert answer.detail == (
        'Invalid trait(s) in "required" parameter: No such trait(s): CUSTOM_NOPE.'
    )
    # A forbidden unknown trait too.
    assert "No such trait(s): CUSTOM_NOPE." in api.get(f"{RP}?required=!CUSTOM_NOPE").detail
    answer = api.get(f"{RP}?resources=NOPE:1")
    assert answer.status == 400
    assert answer.detail == (
        "Invalid resource class in resources parameter: No such resource class NOPE."
    )
    assert names(api, f"member_of={UNKNOWN}") == set()
    assert names(api, f"member_of=!{UNKNOWN}") == {"a"}


def test_the_resources_filter_applies_the_whole_of_fits(api: Client) -> None:
    provider = api.provider("p", uuid=UUID)
    api.inventory(
        provider,
        VCPU={
            "total": 10,
            "reserved": 2,
            "allocation_ratio": 2.0,
            "min_unit": 2,
            "max_unit": 12,
            "step_size": 2,
        },
    )
    consumer = "aaaaaaaa-0000-4000-8000-0000000000cc"
    assert api.claim(consumer, held={provider: {"VCPU": 6}}).status == 204
    fits = {amount for amount in range(1, 20) if names(api, f"resources=VCPU:{amount}")}
    # Capacity (10 - 2) * 2 = 16, of which 6 are used.
    assert fits == {2, 4, 6, 8, 10}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "Got: empty string."),
        ("%20", "Got: empty string."),
        ("VCPU", "Got: VCPU."),
        ("VCPU:1,", "Got: ."),
        ("VCPU:1:2", "Got: VCPU:1:2."),
    ],
)
def test_badly_formed_resources(api: Client, value: str, reason: str) -> None:
    answer = api.get(f"{RP}?resources={value}")
    assert answer.status == 400
    assert answer.detail == (
        "Badly formed resources parameter. Expected resources query string parameter in form: "
        f"?resources=VCPU:2,MEMORY_MB:1024. {reason}"
    )


def test_amounts_are_whole_and_positive(api: Client) -> None:
    assert api.get(f"{RP}?resources=VCPU:x").detail == (
        "Requested resource VCPU expected positive integer amount. Got: x."
    )
    assert api.get(f"{RP}?resources=VCPU:0").detail == (
        "Requested resource VCPU requires amount >= 1. Got: 0."
    )
    assert names(api, "resources=VCPU:%201%20") == set()


def test_required_by_version(api: Client) -> None:
    fast, cold, both = api.provider("fast"), api.provider("cold"), api.provider("both")
    api.traits(fast, "CUSTOM_FAST")
    api.traits(cold, "CUSTOM_COLD")
    api.traits(both, "CUSTOM_FAST", "CUSTOM_COLD")
    assert names(api, "required=CUSTOM_FAST,CUSTOM_COLD") == {"both"}
    assert names(api, "required=CUSTOM_FAST,!CUSTOM_COLD", "1.22") == {"fast"}
    assert names(api, "required=in:CUSTOM_FAST,CUSTOM_COLD") == {"fast", "cold", "both"}
    # Repeated: all from 1.39, the last before.
    repeated = "required=CUSTOM_FAST&required=CUSTOM_COLD"
    assert names(api, repeated) == {"both"}
    assert names(api, repeated, "1.38") == {"cold", "both"}
    prefix = "Invalid query string parameters: "
    example = "Expected 'required' parameter value of the form: HW_CPU_X86_VMX,"
    for query, version, reason in (
        ("required=!A", "1.21", f"{example}CUSTOM_MAGIC. Got: !A"),
        ("required=A,", "1.21", f"{example}CUSTOM_MAGIC. Got an empty trait in: A,"),
        ("required=A,", "1.22", f"{example}!CUSTOM_MAGIC. Got an empty trait in: A,"),
        ("required=!", "1.22", f"{example}!CUSTOM_MAGIC. Got an empty trait in: !"),
        (
            "required=in:A,B",
            "1.38",
            "The format 'in:HW_CPU_X86_VMX,CUSTOM_MAGIC' only supported since microversion 1.39. "
            "Got: in:A,B",
        ),
        (
            "required=in:A,",
            "1.39",
            "Expected 'required' parameter value of the form: in:HW_CPU_X86_VMX,CUSTOM_MAGIC. "
            "Got an empty trait in: in:A,",
        ),
        (
            "required=in:A,!B",
            "1.39",
            "The format 'in:HW_CPU_X86_VMX,CUSTOM_MAGIC' does not support forbidden traits. "
            "Got: in:A,!B",
        ),
    ):
        answer = api.get(f"{RP}?{query}", version=version)
        assert answer.status == 400
        assert answer.detail == prefix + reason


def test_member_of_by_version(api: Client) -> None:
    second = AGGREGATE.replace("1", "2")
    api.aggregates(api.provider("a"), AGGREGATE)
    api.aggregates(api.provider("b"), second)
    api.aggregates(api.provider("both"), AGGREGATE, second)
    api.provider("none")
    assert names(api, f"member_of=in:{AGGREGATE},{second}", "1.3") == {"a", "b", "both"}
    repeated = f"member_of={AGGREGATE}&member_of={second}"
    assert names(api, repeated, "1.24") == {"both"}
    assert names(api, f"member_of=!{AGGREGATE}", "1.32") == {"b", "none"}
    assert names(api, f"member_of=!in:{AGGREGATE},{second}", "1.32") == {"none"}
    assert api.get(f"{RP}?member_of={AGGREGATE}", version="1.2").status == 400
    for query, version, detail in (
        (repeated, "1.23", "Multiple member_of parameters are not supported"),
        (
            f"member_of=!{AGGREGATE}",
            "1.31",
            "Forbidden member_of parameters are not supported in the specified microversion",
        ),
        (
            f"member_of={AGGREGATE},{second}",
            "1.39",
            "Multiple values for 'member_of' must be prefixed with the 'in:' or '!in:' keyword "
            f"using the valid microversion. Got: {AGGREGATE},{second}",
        ),
        (
            "member_of=in:x",
            "1.39",
            "Invalid query string parameters: Expected 'member_of' parameter to contain valid "
            "UUID(s). Got: x",
        ),
    ):
        answer = api.get(f"{RP}?{query}", version=version)
        assert answer.status == 400
        assert answer.detail == detail


def test_creation_refuses_an_impossible_parent_or_name(api: Client) -> None:
    for body, reason in (
        (
            {"parent_provider_uuid": UUID},
            "parent provider UUID cannot be same as UUID. "
            "Please set parent provider UUID to None if there is no parent.",
        ),
        ({"parent_provider_uuid": UNKNOWN}, "parent provider UUID does not exist."),
        ({"name": ""}, "name is required"),
    ):
        sent = {"name": "x", "uuid": UUID, **body}
        answer = api.post(RP, sent)
        assert answer.status == 400
        assert answer.detail == (
            f'Unable to create resource provider "{sent["name"]}", {UUID}: '
            f"Object action create failed because: {reason}"
        )


def test_before_1_37_a_provider_may_get_a_parent_but_not_lose_or_change_it(api: Client) -> None:
    api.provider("one", uuid=UUID)
    api.provider("two", uuid=OTHER)
    moving = api.provider("moving", uuid=THIRD)

    def move(parent: str | None, version: str = "1.36") -> str:
        body = {"name": "moving", "parent_provider_uuid": parent}
        answer = api.put(moving, body, version=version)
        if answer.status == 200:
            return str(answer.json["root_provider_uuid"])
        head, _, reason = answer.detail.partition(" failed because: ")
        assert head.startswith(f"Unable to save resource provider {THIRD}: Object action ")
        return f"{head.rpartition(' ')[2]}: {reason}"

    assert move(None) == THIRD
    assert move(UUID) == UUID
    assert move(UUID) == UUID
    assert move(None) == "update: un-parenting a provider is not currently allowed."
    assert move(OTHER) == "update: re-parenting a provider is not currently allowed."
    assert move(UNKNOWN) == "create: parent provider UUID does not exist."
    assert move(THIRD, "1.37") == "update: creating loop in the provider tree is not allowed."
    assert move(OTHER, "1.37") == OTHER
    assert move(None, "1.37") == THIRD
    assert api.put(moving, {"name": "moving"}).json["parent_provider_uuid"] is None


def test_a_whole_subtree_moves_along_and_cannot_be_hung_below_itself(api: Client) -> None:
    api.provider("root", uuid=OTHER)
    top = api.provider("top", uuid=UUID)
    api.provider("leaf", uuid=THIRD, parent_provider_uuid=UUID)
    assert api.put(top, {"name": "top", "parent_provider_uuid": OTHER}).status == 200
    assert names(api, f"in_tree={THIRD}") == {"root", "top", "leaf"}
    assert api.get(f"{RP}/{THIRD}").json["root_provider_uuid"] == OTHER
    answer = api.put(top, {"name": "top", "parent_provider_uuid": THIRD})
    assert answer.status == 400
    assert "creating loop in the provider tree" in answer.detail


def test_deletion_refuses_unknown_parents_and_used_providers(api: Client) -> None:
    answer = api.delete(f"{RP}/{UNKNOWN}")
    assert answer.status == 404
    assert answer.detail == f"No resource provider with uuid {UNKNOWN} found for delete"
    root = api.provider("root", uuid=UUID)
    child = api.provider("child", uuid=OTHER, parent_provider_uuid=UUID)
    answer = api.delete(root)
    assert answer.status == 409
    assert answer.code == "placement.resource_provider.cannot_delete_parent"
    assert answer.detail == (
        f"Unable to delete parent resource provider {UUID}: It has child resource providers."
    )
    api.inventory(child, VCPU=1)
    api.traits(child, "CUSTOM_FAST")
    api.aggregates(child, AGGREGATE)
    consumer = "aaaaaaaa-0000-4000-8000-0000000000cc"
    assert api.claim(consumer, held={child: {"VCPU": 1}}).status == 204
    answer = api.delete(child)
    assert answer.status == 409
    assert answer.code == "placement.resource_provider.inuse"
    assert answer.detail == (
        f"Unable to delete resource provider {OTHER}: Resource provider has allocations."
    )
    assert api.delete(f"/allocations/{consumer}").status == 204
    assert api.delete(child).status == 204
    assert api.delete(root).status == 204
    assert names(api, "") == set()


def test_no_route_below_an_unknown_provider_finds_anything(api: Client) -> None:
    for path in ("", "/inventories", "/usages", "/aggregates", "/traits", "/inventories/VCPU"):
        answer = api.get(f"{RP}/{UNKNOWN}{path}")
        assert answer.status == 404
        assert f"No resource provider with uuid {UNKNOWN} found" in answer.detail
    dashless = UUID.replace("-", "")
    api.provider(uuid=UUID)
    assert api.get(f"{RP}/{dashless}").status == 404
    assert api.get(f"{RP}/{UUID.upper()}").status == 404
