"""GET /provider_trees/{uuid}: what it shows, its tags, and who may ask."""

from typing import Any

import pytest

from tests.fixtures.plain_trees import make_tree

from .wsgi_client import EXTENDED, Answer, Client

ROOT, CELL, CARD, LEAF = (f"11111111-0000-4000-8000-00000000000{number}" for number in range(1, 5))
UNKNOWN = "00000000-0000-4000-8000-00000000dead"
A, B = (f"{digit * 8}-0000-4000-8000-0000000000cc" for digit in "ab")
AGGREGATE = "99999999-0000-4000-8000-000000000001"
LATER = "00000000-0000-4000-8000-000000000002"
"""An aggregate that is made after the other, and comes before it by name."""


def provider(uuid: str, name: str, parent: str | None, **more: Any) -> dict[str, Any]:
    return {"uuid": uuid, "name": name, "parent_provider_uuid": parent, **more}


def get(api: Client, uuid: str = ROOT, query: str = "", **conditions: str) -> Answer:
    headers = {key.replace("_", "-"): text for key, text in conditions.items()}
    return api.get(f"/provider_trees/{uuid}{query}", version=EXTENDED, headers=headers)


@pytest.fixture
def tree(api: Client) -> str:
    """A host with a cell, and a card in the cell; the tag."""
    cell = {"inventories": {"VCPU": {"total": 8}}, "aggregates": [AGGREGATE]}
    card = {
        "inventories": {"CUSTOM_CARD": {"total": 4}},
        "traits": ["CUSTOM_FAST", "STORAGE_DISK_SSD"],
        "aggregates": [AGGREGATE, LATER],
    }
    providers = [
        provider(ROOT, "host", None, traits=["COMPUTE_NODE"]),
        provider(CELL, "cell", ROOT, **cell),
        provider(CARD, "card", CELL, **card),
    ]
    make_tree({"providers": providers}, api.must)
    return get(api).headers["etag"]


def test_a_tree_is_shown_with_all_that_its_providers_have(api: Client, tree: str) -> None:
    answer = get(api, CARD)
    assert answer.json == get(api).json
    assert answer.json["root_provider_uuid"] == ROOT
    shown = answer.json["providers"]
    assert [entry["uuid"] for entry in shown] == [ROOT, CELL, CARD]
    assert shown[2] == {
        "uuid": CARD,
        "name": "card",
        "parent_provider_uuid": CELL,
        "generation": api.generation(f"/resource_providers/{CARD}"),
        "inventories": {
            "CUSTOM_CARD": {
                "total": 4,
                "reserved": 0,
                "min_unit": 1,
                "max_unit": 2147483647,
                "step_size": 1,
                "allocation_ratio": 1.0,
            }
        },
        "traits": ["CUSTOM_FAST", "STORAGE_DISK_SSD"],
        "aggregates": [LATER, AGGREGATE],
    }
    assert shown[1]["aggregates"] == [AGGREGATE]
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["vary"] == "openstack-api-version"


def test_children_follow_their_parent_by_name(api: Client) -> None:
    providers = [
        provider(ROOT, "host", None),
        provider(CARD, "b", ROOT),
        provider(CELL, "a", ROOT),
        provider(LEAF, "z", CELL),
    ]
    make_tree({"providers": providers}, api.must)
    assert [entry["uuid"] for entry in get(api).json["providers"]] == [ROOT, CELL, LEAF, CARD]


def test_include_shows_usages_and_all_that_each_consumer_of_the_tree_has(
    api: Client, tree: str
) -> None:
    outside = api.provider("outside")
    api.inventory(outside, VCPU=4)
    elsewhere = outside.rpartition("/")[2]
    assert api.claim(A, held={CELL: {"VCPU": 2}, elsewhere: {"VCPU": 1}}).status == 204
    assert api.claim(B, held={elsewhere: {"VCPU": 1}}).status == 204
    shown = get(api, query="?include=usages&include=allocations")
    usages = {entry["uuid"]: entry["usages"] for entry in shown.json["providers"]}
    assert usages == {ROOT: {}, CELL: {"VCPU": 2}, CARD: {"CUSTOM_CARD": 0}}
    assert shown.json["allocations"] == {A: api.get(f"/allocations/{A}").json}
    assert shown.json["allocations"][A]["allocations"].keys() == {CELL, elsewhere}
    assert get(api, query="?include=usages,allocations").json == shown.json
    assert "allocations" not in get(api, query="?include=usages").json
    assert "usages" not in get(api).json["providers"][0]


def test_include_shows_what_others_share_with_the_tree(api: Client, tree: str) -> None:
    root = api.provider("storage")
    pool = api.provider("pool", parent_provider_uuid=root.rpartition("/")[2])
    api.inventory(pool, DISK_GB=100)
    api.traits(pool, "MISC_SHARES_VIA_AGGREGATE")
    assert get(api, query="?include=sharing").json["sharing_providers"] == []
    api.aggregates(pool, AGGREGATE)
    shown = get(api, query="?include=sharing")
    (of_pool,) = get(api, pool.rpartition("/")[2]).json["providers"][1:]
    assert shown.json == {**get(api).json, "sharing_providers": [of_pool]}
    assert of_pool["parent_provider_uuid"] == root.rpartition("/")[2]
    used = get(api, query="?include=sharing,usages").json["sharing_providers"]
    assert used == [{**of_pool, "usages": {"DISK_GB": 0}}]
    assert get(api).headers["etag"] == tree != shown.headers["etag"]
    assert api.claim(A, held={pool.rpartition("/")[2]: {"DISK_GB": 2}}).status == 204
    tag = shown.headers["etag"]
    assert get(api, query="?include=sharing", If_None_Match=tag).status == 304


def test_a_claim_changes_the_tags_of_what_shows_it_alone(api: Client, tree: str) -> None:
    queries = ("?include=usages", "?include=allocations", "?include=usages,allocations")
    before = [get(api, query=query).headers["etag"] for query in queries]
    assert api.claim(A, held={CELL: {"VCPU": 1}}).status == 204
    assert get(api).headers["etag"] == tree
    after = [get(api, query=query).headers["etag"] for query in queries]
    assert all(old != new for old, new in zip(before, after, strict=True))
    for query, tag in zip(queries, after, strict=True):
        assert get(api, query=query, If_None_Match=tag).status == 304


def test_the_present_tag_is_304_without_a_body(api: Client, tree: str) -> None:
    for condition in (tree, f"W/{tree}", f'"other", {tree}', "*"):
        answer = get(api, CELL, If_None_Match=condition)
        assert (answer.status, answer.body) == (304, b"")
        assert answer.headers["etag"] == tree
        assert answer.headers["cache-control"] == "no-cache"
        assert not {"content-type", "content-length"} & answer.headers.keys()
    assert get(api, If_None_Match='"other"').status == 200


def test_a_tree_is_only_read(api: Client, tree: str) -> None:
    answer = api.put(f"/provider_trees/{ROOT}", {"providers": []}, version=EXTENDED)
    assert (answer.status, answer.headers["allow"]) == (405, "GET")


def test_an_unknown_provider_is_404(api: Client) -> None:
    for conditions in ({}, {"If_None_Match": '"x"'}, {"If_None_Match": "*"}):
        answer = get(api, UNKNOWN, **conditions)
        assert (answer.status, answer.code) == (404, "placement.undefined_code")


@pytest.mark.parametrize("query", ["?include=all", "?limit=1", "?include=", "?include=usages,"])
def test_an_unknown_parameter_is_400(api: Client, tree: str, query: str) -> None:
    assert get(api, query=query).status == 400
