"""GET /capacity and GET /fragmentation: how much more fits, and what is stranded."""

from __future__ import annotations

import uuid
from typing import Any

import jsonschema
import pytest

from placement_server import limits
from placement_server.api.extensions.capacity import CAPACITY, FRAGMENTATION
from tests.fixtures.allocations import claim_body

from .candidate_world import A1, A2, UNKNOWN, UUID, build_world
from .conftest import MakeApi
from .extended_searches import ask
from .wsgi_client import EXTENDED, Answer, Client


@pytest.fixture
def api(make_api: MakeApi) -> Client:
    return make_api(filled_by=build_world)


def get(api: Client, path: str) -> Answer:
    return api.get(path, version=EXTENDED)


def capacity(api: Client, query: str) -> Any:
    answer = get(api, f"/capacity?{query}")
    assert answer.status == 200, answer.body
    jsonschema.validate(answer.json, CAPACITY)
    return answer.json


def claims_until_full(api: Client, query: str) -> int:
    """The number of claims of the first candidate each time, until there is none."""
    claims = 0
    while True:
        requests = ask(api, f"{query}&limit=1").json["allocation_requests"]
        if not requests:
            return claims
        amounts = {
            rp: allocation["resources"] for rp, allocation in requests[0]["allocations"].items()
        }
        path = f"/allocations/{uuid.uuid4()}"
        assert api.put(path, claim_body(amounts), version="1.39").status == 204
        claims += 1


@pytest.mark.parametrize(
    ("query", "at_least", "at_most"),
    [
        ("resources=VCPU:3", 6, 6),
        ("resources_C=VCPU:2&resources_N=SRIOV_NET_VF:1&same_subtree=_C,_N", 8, 8),
        ("resources_1=SRIOV_NET_VF:1&resources_2=SRIOV_NET_VF:1&group_policy=isolate", 4, 4),
        ("resources=MEMORY_MB:1024,DISK_GB:400", 4, 4),
        # hostA has one pool only: had hostB used it up first, only four would fit.
        ("resources=MEMORY_MB:1024,DISK_GB:200", 8, 8),
        ("resources=VCPU:1000", 0, 0),
    ],
)
def test_as_many_claims_succeed_as_counted(
    api: Client, query: str, at_least: int, at_most: int
) -> None:
    counted = capacity(api, query)
    assert (counted["at_least"], counted["at_most"]) == (at_least, at_most)
    assert counted["exact"] == (at_least == at_most)
    assert claims_until_full(api, query) <= at_most
    after = capacity(api, query)
    assert (after["at_least"], after["at_most"], after["trees"]) == (0, 0, [])


def test_trees_are_listed_with_the_most_room_first_as_many_as_the_limit_allows(api: Client) -> None:
    counted = capacity(api, "resources=VCPU:3,MEMORY_MB:512")
    host_a = {"root": UUID["hostA"], "name": "hostA", "at_least": 4, "at_most": 4}
    host_b = {"root": UUID["hostB"], "name": "hostB", "at_least": 2, "at_most": 2}
    assert counted["trees"] == [host_a, host_b]
    assert counted["limited_by"] == {"VCPU": 2}
    limited = capacity(api, "resources=VCPU:3,MEMORY_MB:512&limit=1")
    assert limited == {**counted, "trees": [host_a]}


def test_trees_that_share_a_pool_are_limited_by_what_it_runs_out_of(api: Client) -> None:
    counted = capacity(api, f"resources=MEMORY_MB:1,DISK_GB:500&member_of={A1}")
    # hostA has pool1 to itself if hostB does not take from it, and the other way round.
    assert [tree["at_most"] for tree in counted["trees"]] == [2, 2]
    assert (counted["at_most"], counted["limited_by"]) == (2, {"DISK_GB": 2})


def test_a_class_that_was_deleted_after_its_last_inventory_is_in_no_report(api: Client) -> None:
    assert api.put("/resource_classes/CUSTOM_GOLD", version="1.39").status == 201
    provider = api.provider("gold")
    api.inventory(provider, CUSTOM_GOLD=8)
    assert "CUSTOM_GOLD" in fragmentation(api)["resource_classes"]
    assert api.delete(f"{provider}/inventories", version="1.39").status == 204
    assert api.delete("/resource_classes/CUSTOM_GOLD", version="1.39").status == 204
    assert "CUSTOM_GOLD" not in fragmentation(api)["resource_classes"]


@pytest.mark.parametrize(
    "path",
    [
        "/capacity?resources=VCPU:1&color=red",
        "/capacity?resources=CUSTOM_NOTHING:1",
        "/capacity",
        "/fragmentation?color=red",
        "/fragmentation?resources=VCPU",
        "/fragmentation?resources=CUSTOM_NOTHING:1",
        "/fragmentation?member_of=nobody",
        "/fragmentation?" + "&".join(["resources=VCPU:1"] * (limits.SHAPES + 1)),
    ],
)
def test_a_malformed_query_is_refused(api: Client, path: str) -> None:
    assert get(api, path).status == 400


def test_a_count_that_takes_too_long_gives_up_and_says_so(make_api: MakeApi) -> None:
    """Fifteen groups and seven GPUs, each with room for any two groups and for no three."""
    api = make_api(placement_server__search_deadline=0.1)
    host = api.provider("host").rpartition("/")[2]
    for number in range(7):
        gpu = api.provider(f"gpu{number}", parent_provider_uuid=host)
        api.inventory(gpu, VGPU=95 + number)
    groups = "&".join(f"resources{number}=VGPU:{34 + number}" for number in range(15))
    answer = get(api, f"/capacity?{groups}&group_policy=none")
    assert answer.status == 503
    assert answer.code == "placement.search_gave_up"
    assert "gave up after 0.1 seconds with " in answer.detail
    assert "search_deadline" in answer.detail


def test_a_supposed_fleet_is_asked_in_the_same_words(api: Client) -> None:
    body = {
        "changes": [{"add_tree": {"like": UUID["hostA"], "copies": 2}}],
        "questions": [{"capacity": "resources=VCPU:3&limit=3"}, {"capacity": "color=red"}],
    }
    answer = api.post("/what_if", body, version=EXTENDED)
    supposed, refused = answer.json["answers"]
    jsonschema.validate(supposed, CAPACITY)
    assert (supposed["at_least"], supposed["at_most"]) == (6 + 2 * 4, 6 + 2 * 4)
    assert [tree["name"] for tree in supposed["trees"]] == ["hostA", None, None]
    assert refused["errors"][0]["status"] == 400


def fragmentation(api: Client, query: str = "") -> Any:
    answer = get(api, f"/fragmentation?{query}")
    assert answer.status == 200, answer.body
    jsonschema.validate(answer.json, FRAGMENTATION)
    return answer.json


def test_fragmentation_adds_up_each_class(api: Client) -> None:
    api.put(f"/allocations/{UNKNOWN}", claim_body({UUID["cellA0"]: {"VCPU": 3}}), version="1.39")
    report = fragmentation(api)
    assert report["shapes"] == []
    assert report["resource_classes"]["VCPU"] == {
        "capacity": 24,
        "used": 3,
        "free": 21,
        "largest_free": 8,
        "stranded": 0,
    }
    of_b = fragmentation(api, f"member_of={A2}")["resource_classes"]
    assert {name: use["free"] for name, use in of_b.items()} == {
        "VCPU": 8,
        "MEMORY_MB": 4096,
        "DISK_GB": 1100,
    }


def test_shapes_fit_less_often_than_if_all_that_is_free_lay_together(api: Client) -> None:
    report = fragmentation(api, "resources=VCPU:5,MEMORY_MB:512&resources=DISK_GB:2000")
    assert report["shapes"] == [
        {
            "resources": {"VCPU": 5, "MEMORY_MB": 512},
            "at_least": 3,
            "at_most": 3,
            "together": 4,
            "ratio": 0.75,
        },
        {
            "resources": {"DISK_GB": 2000},
            "at_least": 0,
            "at_most": 0,
            "together": 1,
            "ratio": 0.0,
        },
    ]


def test_what_no_candidate_can_have_outside_of_an_aggregate_is_not_counted(api: Client) -> None:
    """A GPU below a root of the aggregate is not a member itself, but serves no request either."""
    host = api.provider("zoned")
    api.inventory(host, VCPU=4)
    card = api.provider("card", parent_provider_uuid=host.rpartition("/")[2])
    api.inventory(card, VGPU=8)
    zone = str(uuid.uuid4())
    body = {"resource_provider_generation": 1, "aggregates": [zone]}
    assert api.put(f"{host}/aggregates", body, version="1.39").status == 200
    query = f"resources=VGPU:1&member_of=!{zone}"
    assert ask(api, query).json["allocation_requests"] == []
    report = fragmentation(api, query)
    assert report["resource_classes"].get("VGPU", {"free": 0})["free"] == 0
    (shape,) = report["shapes"]
    assert (shape["at_most"], shape["together"]) == (0, 0)
    assert fragmentation(api, "resources=VGPU:1")["resource_classes"]["VGPU"]["free"] == 8


def test_a_provider_outside_of_an_aggregate_counts_where_it_shares_with_a_tree(api: Client) -> None:
    # pool1 shares with hostA and hostB, pool2 with hostB; without A2 hostB is not asked.
    classes = fragmentation(api, f"resources=DISK_GB:1&member_of=!{A2}")["resource_classes"]
    assert classes["DISK_GB"]["free"] == 1000


def test_what_is_free_beside_a_class_that_has_run_out_is_stranded(api: Client) -> None:
    api.put(f"/allocations/{UNKNOWN}", claim_body({UUID["hostB"]: {"VCPU": 8}}), version="1.39")
    shape = "resources=VCPU:1,MEMORY_MB:512,DISK_GB:1"
    classes = fragmentation(api, shape)["resource_classes"]
    # All VCPU of hostB are taken, and nobody else reaches its own disk and pool2.
    assert {name: use["stranded"] for name, use in classes.items()} == {
        "VCPU": 0,
        "MEMORY_MB": 4096,
        "DISK_GB": 1100,
        "SRIOV_NET_VF": 0,
    }
    # Another shape can still use the memory.
    classes = fragmentation(api, f"{shape}&resources=MEMORY_MB:512")["resource_classes"]
    assert (classes["MEMORY_MB"]["stranded"], classes["DISK_GB"]["stranded"]) == (0, 1100)
