"""Listings of providers while the server has an index: the same answers, and never old ones."""

from __future__ import annotations

import uuid
from typing import Any
from unittest import mock

import pytest

from placement_server.candidates.service import CandidateService
from placement_server.store.providers import providers
from placement_server.store.store import Store

from .conftest import MakeApi
from .wsgi_client import Client

AGGREGATE = str(uuid.uuid4())


def make(api: Client, name: str, vcpus: int, traits: list[str]) -> None:
    path = f"/resource_providers/{uuid.uuid5(uuid.NAMESPACE_DNS, name)}"
    body: dict[str, Any] = {"name": name, "uuid": path.rpartition("/")[2]}
    assert api("POST", "/resource_providers", body).status == 200
    generation = 0
    for part, content in (
        ("inventories", {"VCPU": {"total": vcpus}}),
        ("traits", traits),
        ("aggregates", [AGGREGATE]),
    ):
        body = {"resource_provider_generation": generation, part: content}
        answer = api("PUT", f"{path}/{part}", body)
        assert answer.status == 200
        generation = answer.json["resource_provider_generation"]


def names(api: Client, query: str) -> list[str]:
    answer = api("GET", f"/resource_providers?{query}")
    assert answer.status == 200
    return [provider["name"] for provider in answer.json["resource_providers"]]


@pytest.fixture
def api(make_api: MakeApi) -> Client:
    api = make_api()
    make(api, "small", 4, ["HW_NUMA_ROOT"])
    make(api, "large", 8, [])
    # A search for candidates is what loads the index.
    assert api("GET", "/allocation_candidates?resources=VCPU:1").status == 200
    return api


def test_a_listing_sees_what_was_written_before_it(api: Client) -> None:
    assert names(api, "resources=VCPU:8") == ["large"]
    assert names(api, "resources=VCPU:16") == []
    make(api, "huge", 16, [])
    assert names(api, "resources=VCPU:16") == ["huge"]
    assert names(api, f"required=!HW_NUMA_ROOT&member_of={AGGREGATE}") == ["large", "huge"]


def test_the_representation_is_that_of_the_store(api: Client) -> None:
    by_index = api("GET", "/resource_providers?resources=VCPU:1")
    with mock.patch.object(CandidateService, "provider_ids", return_value=None):
        by_store = api("GET", "/resource_providers?resources=VCPU:1")
    assert by_index.body == by_store.body
    assert by_index.headers["last-modified"] == by_store.headers["last-modified"]


def test_unknown_names_are_told_as_ever(api: Client) -> None:
    answer = api("GET", "/resource_providers?required=CUSTOM_NOBODY_KNOWS")
    assert answer.status == 400
    assert "No such trait(s): CUSTOM_NOBODY_KNOWS" in answer.detail
    assert names(api, f"member_of={uuid.uuid4()}") == []


def test_where_none_passes_the_store_is_not_asked(api: Client) -> None:
    read = Store.read

    def refusing(store: Store, function: Any, *args: Any, **kwargs: Any) -> Any:
        assert function is not providers.find
        return read(store, function, *args, **kwargs)

    with mock.patch.object(Store, "read", refusing):
        assert names(api, "resources=VCPU:9") == []
