"""Allocation candidates by the definitions: a brute force over the world that our server shows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

from placement_server.candidates.query.query import CandidateQuery
from tests.property import oracle
from tests.unit.candidates.forest import Inventory, Provider, Result

from ..wsgi_client import Answer, Client

Key = str
"""One result as a text: who gives how much of what, and from 1.34 on who serves which group."""


def keys(answer: Answer) -> Counter[Key]:
    """The results of an answer."""
    return Counter(
        _key(
            [
                (uuid, name, n)
                for uuid, allocation in given(request).items()
                for name, n in allocation.items()
            ],
            request.get("mappings", {}).items(),
        )
        for request in answer.json["allocation_requests"]
    )


def given(request: dict[str, Any]) -> dict[str, dict[str, int]]:
    """The resources of one result, by provider."""
    allocations = request["allocations"]
    if isinstance(allocations, list):
        return {
            allocation["resource_provider"]["uuid"]: allocation["resources"]
            for allocation in allocations
        }
    return {uuid: allocation["resources"] for uuid, allocation in allocations.items()}


def shapes(found: Counter[Key]) -> Counter[Key]:
    """Results without amounts: which providers, and which of them for which group."""
    without: Counter[Key] = Counter()
    for key, count in found.items():
        amounts, mappings = json.loads(key)
        without[json.dumps([sorted({uuid for uuid, _, _ in amounts}), mappings])] += count
    return without


def results(world: list[Provider], query: CandidateQuery, minor: int) -> set[Result]:
    """What the definitions find at a microversion, `limit` aside."""
    return oracle.answer(world, query, nested=minor >= 29)


def keys_of(found: Iterable[Result], minor: int) -> Counter[Key]:
    """Results as an answer of a microversion shows them."""
    return Counter(_key(amounts, mappings if minor >= 34 else ()) for amounts, mappings in found)


def _key(amounts: Iterable[tuple[str, str, int]], mappings: Iterable[tuple[str, Any]]) -> Key:
    return json.dumps([sorted(amounts), sorted((suffix, sorted(p)) for suffix, p in mappings)])


def world_of(api: Client) -> list[Provider]:
    """All providers of a server, named by their uuids."""
    listed = api.get("/resource_providers").json["resource_providers"]
    return [
        Provider(
            entry["uuid"],
            entry["parent_provider_uuid"],
            _stock(api, f"/resource_providers/{entry['uuid']}"),
            tuple(api.get(f"/resource_providers/{entry['uuid']}/traits").json["traits"]),
            tuple(api.get(f"/resource_providers/{entry['uuid']}/aggregates").json["aggregates"]),
        )
        for entry in listed
    ]


def _stock(api: Client, provider: str) -> dict[str, Inventory | int]:
    records = api.get(f"{provider}/inventories").json["inventories"]
    used = api.get(f"{provider}/usages").json["usages"]
    return {
        name: Inventory(
            record["total"],
            record["reserved"],
            record["min_unit"],
            record["max_unit"],
            record["step_size"],
            record["allocation_ratio"],
            used[name],
        )
        for name, record in records.items()
    }
