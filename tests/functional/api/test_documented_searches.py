"""The searches that the documentation shows, on the host that it describes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .conftest import MakeApi
from .extended_searches import ask
from .wsgi_client import Client

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "candidate-searches.md"
ZONE = "f3f3a5b4-4a3c-4f0a-9e2b-3f4d0c9a7e51"


def shown() -> list[str]:
    """The queries of the page, in its order."""
    blocks = re.findall(
        r"^    GET /allocation_candidates\?(.*(?:\n        .*)*)", PAGE.read_text(), re.M
    )
    return ["".join(block.split()) for block in blocks]


def add(api: Client, name: str, parent: str | None, stock: dict[str, int]) -> str:
    above = {"parent_provider_uuid": parent.rpartition("/")[2]} if parent else {}
    provider = api.provider(name, **above)
    if stock:
        body = {
            "resource_provider_generation": 0,
            "inventories": {rc: {"total": total} for rc, total in stock.items()},
        }
        assert api.put(f"{provider}/inventories", body).status == 200
    return provider


def host(api: Client, name: str) -> str:
    root = add(api, name, None, {"DISK_GB": 100})
    for cell in range(2):
        numa = add(api, f"{name}.cell{cell}", root, {"VCPU": 8})
        add(api, f"{name}.gpu{cell}", numa, {"VGPU": 4})
        card = add(api, f"{name}.nic{cell}", numa, {})
        body = {"resource_provider_generation": 0, "traits": ["CUSTOM_NIC"]}
        assert api.put(f"{card}/traits", body).status == 200
        for port in range(2):
            add(api, f"{name}.pf{cell}{port}", card, {"SRIOV_NET_VF": 8})
    return root


@pytest.fixture
def api(make_api: MakeApi) -> Client:
    api = make_api()
    assert api.put("/traits/CUSTOM_NIC").status == 201
    host(api, "one")
    member = host(api, "two")
    body = {"resource_provider_generation": 1, "aggregates": [ZONE]}
    assert api.put(f"{member}/aggregates", body).status == 200
    return api


def found(api: Client, query: str) -> set[tuple[str, ...]]:
    """The names of the providers that each candidate takes from."""
    listed = api.get("/resource_providers").json["resource_providers"]
    names = {entry["uuid"]: entry["name"] for entry in listed}
    answer = ask(api, query)
    assert answer.status == 200, answer.body
    return {
        tuple(sorted(names[uuid] for uuid in request["allocations"]))
        for request in answer.json["allocation_requests"]
    }


def test_the_page_shows_four_searches_that_find_what_it_says(api: Client) -> None:
    two_ports, same_cell, other_cell, zone = shown()
    hosts = ("one", "two")
    assert found(api, two_ports) == {
        (f"{name}.pf{cell}0", f"{name}.pf{cell}1") for name in hosts for cell in range(2)
    }
    assert found(api, same_cell) == {
        (f"{name}.cell{cell}", f"{name}.gpu{cell}") for name in hosts for cell in range(2)
    }
    assert found(api, other_cell) == {
        (f"{name}.cell{cell}", f"{name}.gpu{1 - cell}") for name in hosts for cell in range(2)
    }
    assert found(api, zone) == {(f"two.cell{cell}", f"two.gpu{cell}") for cell in range(2)}
