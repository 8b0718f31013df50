"""Handler of /provider_trees/{uuid}: a whole tree of resource providers in one answer.

An extension. A tree has an entity tag, which says all that a tree is but for what is used of it:
names, parents, inventories, traits and aggregates. Claims do not change it. With the sharing
providers that reach it by an aggregate the tag covers their trees too.
"""

from __future__ import annotations

from collections.abc import Collection
from operator import itemgetter
from typing import Any, Final

from webob.etag import ETagMatcher

from placement_server.api.extensions import agent_reports
from placement_server.api.request import Request, check_query
from placement_server.api.resources.allocations import holder_body
from placement_server.api.response import Headers, Response, empty_response, json_response
from placement_server.candidates.tree_reader import TreeReading
from placement_server.negotiation.microversion import MAX
from placement_server.schemas.allocation import UUID_PATTERN
from placement_server.schemas.validation import (
    COUNT,
    TEXT,
    array_of,
    exact_object,
    map_of,
    optional,
    query_of,
)
from placement_server.store.providers.tree import TreeProvider, extend_tag
from placement_server.store.records import InventoryRecord

_UUID: Final = {"type": "string", "pattern": UUID_PATTERN}
_INTEGER: Final = {"type": "integer"}
_PART: Final = "(usages|allocations|sharing)"

SHOW: Final = query_of(include={"type": "string", "pattern": f"^{_PART}(,{_PART})*$"})
"""The query of GET; `include` may be repeated, and may have several values with commas."""

_INVENTORY: Final = exact_object(
    **dict.fromkeys(("total", "reserved", "min_unit", "max_unit", "step_size"), _INTEGER),
    allocation_ratio={"type": "number"},
)
_PROVIDER: Final = exact_object(
    uuid=_UUID,
    name=TEXT,
    parent_provider_uuid={"type": ["string", "null"], "pattern": UUID_PATTERN},
    generation=_INTEGER,
    inventories=map_of(_INVENTORY),
    traits=array_of(TEXT),
    aggregates=array_of(TEXT),
    usages=map_of(COUNT),
)
_HOLDER: Final = exact_object(
    allocations=map_of(exact_object(generation=_INTEGER, resources=map_of(_INTEGER))),
    project_id=TEXT,
    user_id=TEXT,
    consumer_generation=_INTEGER,
    consumer_type=TEXT,
)

_TREE: Final = exact_object(
    root_provider_uuid=_UUID,
    providers=array_of(optional(_PROVIDER, "usages"), minItems=1),
    sharing_providers=array_of(optional(_PROVIDER, "usages")),
    allocations=map_of(_HOLDER),
)

TREE: Final = optional(_TREE, "sharing_providers", "allocations")
"""The answer: providers in preorder, children by name; sharing providers by name."""


def show(request: Request, provider_uuid: str) -> Response:
    """Show the tree of a provider.

    `include` adds `usages`, `allocations` or `sharing`. With `If-None-Match` and the present
    entity tag the answer is 304. The agent of the host adds a header with a report of itself.
    """
    agent_reports.take(request, provider_uuid)
    included_parts = _included_parts(request)
    known_tags = ETagMatcher.parse(request.environ.get("HTTP_IF_NONE_MATCH", ""), strong=False)
    trees, sharing = request.services.candidates.trees, "sharing" in included_parts
    shows_use = not included_parts <= {"sharing"}
    if "HTTP_IF_NONE_MATCH" in request.environ and not shows_use:
        known_tag = trees.tag(provider_uuid, sharing=sharing)
        if known_tag is not None and known_tag in known_tags:
            return empty_response(304, *_headers(known_tag))
    reading = trees.read(
        provider_uuid, sharing=sharing, allocations="allocations" in included_parts
    )
    body = _representation(reading, included_parts)
    tag = reading.tag()
    if shows_use:
        # with the parts of the representation that claims change
        shown_providers = [*body["providers"], *body.get("sharing_providers", ())]
        usages = [provider.get("usages") for provider in shown_providers]
        tag = extend_tag(tag, [usages, body.get("allocations")])
    if tag in known_tags:
        return empty_response(304, *_headers(tag))
    return json_response(body, *_headers(tag))


def _included_parts(request: Request) -> set[str]:
    names: set[str] = set()
    for name, value in request.params():
        check_query({name: value}, SHOW, request.version)
        names.update(value.split(","))
    return names


def _headers(tag: str) -> Headers:
    return [("etag", f'"{tag}"'), ("cache-control", "no-cache")]


def _representation(reading: TreeReading, included_parts: Collection[str]) -> dict[str, Any]:
    tree, usages = reading.tree, "usages" in included_parts
    parents = tree.parent_uuids()
    body: dict[str, Any] = {
        "root_provider_uuid": tree.root_uuid,
        "providers": [
            _provider(provider, parents[provider.id], usages=usages) for provider in tree.providers
        ],
    }
    if reading.sharing is not None:
        shown_providers = [
            _provider(provider, other.parent_uuids()[provider.id], usages=usages)
            for other in reading.sharing
            for provider in other.shared_with(tree)
        ]
        body["sharing_providers"] = sorted(shown_providers, key=itemgetter("name", "uuid"))
    if "allocations" in included_parts:
        body["allocations"] = {
            consumer.uuid: holder_body(consumer, rows, MAX) for consumer, rows in reading.holders
        }
    return body


def _provider(provider: TreeProvider, parent_uuid: str | None, *, usages: bool) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "uuid": provider.uuid,
        "name": provider.name,
        "parent_provider_uuid": parent_uuid,
        "generation": provider.generation,
        "inventories": {
            name: {field: getattr(inventory, field) for field in InventoryRecord.__struct_fields__}
            for name, inventory in sorted(provider.stock.items())
        },
        "traits": sorted(provider.traits),
        "aggregates": sorted(provider.aggregates),
    }
    if usages:
        entry["usages"] = {
            name: inventory.used for name, inventory in sorted(provider.stock.items())
        }
    return entry
