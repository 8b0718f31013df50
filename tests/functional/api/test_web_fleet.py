"""The read of the pages for the whole fleet, compared with what the API shows of each tree."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from tests.fixtures.plain_trees import make_tree
from tests.fixtures.sample_fleet import hosts

from .wsgi_client import EXTENDED, Client


def put_host(api: Client, body: Any) -> str:
    return make_tree(body, api.must)


def tree(api: Client, root: str) -> Any:
    path = f"/provider_trees/{root}?include=usages"
    return api.get(path, version=EXTENDED).json


def summed(api: Client, root: str) -> dict[str, Any]:
    """What a host is said to be, added up from its tree."""
    providers = tree(api, root)["providers"]
    capacity: Counter[str] = Counter()
    used: Counter[str] = Counter()
    for provider in providers:
        for name, inventory in provider["inventories"].items():
            free_of_host = inventory["total"] - inventory["reserved"]
            capacity[name] += int(free_of_host * inventory["allocation_ratio"])
            used[name] += provider["usages"][name]
    return {
        "name": providers[0]["name"],
        "providers": len(providers),
        "traits": sorted({name for provider in providers for name in provider["traits"]}),
        "aggregates": sorted({name for provider in providers for name in provider["aggregates"]}),
        "classes": {name: (capacity[name], used[name]) for name in capacity},
    }


def shown(body: Any) -> dict[str, Any]:
    """The hosts of an answer by uuid, in the form of `summed`."""
    found = {
        uuid: {
            "name": body["names"][place],
            "providers": body["providers"][place],
            "traits": body["trait_sets"][body["traits"][place]],
            "aggregates": body["aggregate_sets"][body["aggregates"][place]],
            "classes": {},
        }
        for place, uuid in enumerate(body["uuids"])
    }
    for name, use in body["classes"].items():
        places = range(len(found)) if use["host"] is None else use["host"]
        for place, capacity, used in zip(places, use["capacity"], use["used"], strict=True):
            found[body["uuids"][place]]["classes"][name] = (capacity, used)
    return found


def test_every_host_is_shown_as_the_sum_of_its_tree_also_after_changes(
    api: Client, tmp_path: Path
) -> None:
    assert shown(api.get("/-/web/fleet").json) == {}
    roots = [put_host(api, body) for body in hosts(tmp_path, plain=6, captured=5)]
    api.provider("empty", uuid="00000000-0000-4000-8000-0000000000ee")
    roots.append("00000000-0000-4000-8000-0000000000ee")
    assert shown(api.get("/-/web/fleet").json) == {root: summed(api, root) for root in roots}

    gone, changed = roots[-2], roots[0]
    for consumer in api.get(f"/resource_providers/{gone}/allocations").json["allocations"]:
        assert api.delete(f"/allocations/{consumer}").status == 204
    assert api.delete(f"/resource_providers/{gone}").status == 204
    api.traits(f"/resource_providers/{changed}", "HW_GPU_API_VULKAN")
    rest = [root for root in roots if root != gone]
    assert shown(api.get("/-/web/fleet").json) == {root: summed(api, root) for root in rest}


def test_only_some_hosts_can_be_asked_for(api: Client, tmp_path: Path) -> None:
    roots = [put_host(api, body) for body in hosts(tmp_path, plain=2, captured=1)]
    child = tree(api, roots[0])["providers"][1]["uuid"]
    asked = [roots[0], roots[2], child, "00000000-0000-4000-8000-00000000dead", "<b>"]
    answer = api.get("/-/web/fleet?" + "&".join(f"root={root}" for root in asked))
    assert shown(answer.json) == {root: summed(api, root) for root in (roots[0], roots[2])}
    assert answer.headers["cache-control"] == "no-store"
    too_many = api.get("/-/web/fleet?" + "&".join(["root=x"] * 1001))
    assert too_many.status == 400
    assert "root has 1001 hosts, the limit is 1000" in too_many.detail
