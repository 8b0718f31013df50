"""GET /provider_trees/{uuid}: what it shows, its tags, and who may ask."""

import pytest

from ..conftest import MakeApi
from ..wsgi_client import Client
from .trees import (
    CARD,
    CELL,
    LEAF,
    ROOT,
    UNKNOWN,
    A,
    by_uuid,
    claim,
    get,
    host,
    must,
    provider,
    put,
    tag_of,
)


def test_a_new_tree_is_shown_as_it_was_sent(api: Client) -> None:
    made = put(api, host())
    assert made.status == 200
    assert made.json == get(api, CARD).json
    assert made.json["root_provider_uuid"] == ROOT
    shown = made.json["providers"]
    assert [entry["uuid"] for entry in shown] == [ROOT, CELL, CARD]
    assert shown[2] == {
        "uuid": CARD,
        "name": "card",
        "parent_provider_uuid": CELL,
        "generation": 0,
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
        "traits": ["CUSTOM_FAST"],
        "aggregates": [],
    }
    assert made.headers["cache-control"] == "no-cache"
    assert made.headers["vary"] == "openstack-api-version"
    assert api.get(f"/resource_providers/{CARD}").json["root_provider_uuid"] == ROOT


def test_children_follow_their_parent_by_name(api: Client) -> None:
    sent = [
        provider(ROOT, "host", None),
        provider(CARD, "b", ROOT),
        provider(CELL, "a", ROOT),
        provider(LEAF, "z", CELL),
    ]
    must(put(api, sent))
    assert [entry["uuid"] for entry in get(api).json["providers"]] == [ROOT, CELL, LEAF, CARD]


def test_include_shows_usages_and_what_each_consumer_has_in_this_tree(
    api: Client, tree: str
) -> None:
    outside = api.provider("outside")
    api.inventory(outside, VCPU=4)
    must(api.claim(A, held={CELL: {"VCPU": 2}, outside: {"VCPU": 1}}))
    shown = get(api, query="?include=usages&include=allocations")
    assert by_uuid(shown)[CELL]["usages"] == {"VCPU": 2}
    assert shown.json["allocations"] == {
        A: {
            "allocations": {CELL: {"resources": {"VCPU": 2}}},
            "project_id": "project",
            "user_id": "user",
            "consumer_generation": 1,
            "consumer_type": "INSTANCE",
        }
    }
    assert get(api, query="?include=usages,allocations").json == shown.json
    assert "allocations" not in get(api, query="?include=usages").json
    assert "usages" not in get(api).json["providers"][0]


def test_a_claim_changes_the_tags_of_what_shows_it_alone(api: Client, tree: str) -> None:
    queries = ("?include=usages", "?include=allocations", "?include=usages,allocations")
    before = [get(api, query=query).headers["etag"] for query in queries]
    claim(api, A, CELL, VCPU=1)
    assert tag_of(api) == tree
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
        assert "content-type" not in answer.headers
    assert get(api, If_None_Match='"other"').status == 200


@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_without_the_extension_there_is_no_such_path(api: Client, method: str) -> None:
    for version in ("placement 1.39", "placement 1.39, placement-ext 1.0"):
        headers = {"OpenStack-API-Version": version}
        assert api(method, f"/provider_trees/{ROOT}", {}, headers=headers).status == 404


def test_an_unknown_provider_is_404(api: Client) -> None:
    for conditions in ({}, {"If_None_Match": '"x"'}):
        answer = get(api, UNKNOWN, **conditions)
        assert (answer.status, answer.code) == (404, "placement.undefined_code")


@pytest.mark.parametrize("query", ["?include=all", "?limit=1", "?include=", "?include=usages,"])
def test_an_unknown_parameter_is_400(api: Client, tree: str, query: str) -> None:
    assert get(api, query=query).status == 400


def test_the_policy_decides_on_each(make_api: MakeApi) -> None:
    api = make_api(
        policy='"placement:provider_trees:show": "!"\n"placement:provider_trees:update": "!"\n'
    )
    assert get(api).status == 403
    assert put(api, host()).status == 403
