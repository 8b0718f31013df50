"""Handler of /provider_trees/{uuid}: a whole tree of resource providers in one answer.

An extension. A tree has an entity tag, which says all that a tree is but for what is used of it:
names, parents, inventories, traits and aggregates. Claims do not change it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from webob.etag import ETagMatcher

from placement_server.api.request import Request, check_query
from placement_server.api.resources.allocations import holder_body
from placement_server.api.resources.resource_providers import no_such_provider
from placement_server.api.response import Headers, Response, empty_response, json_response
from placement_server.negotiation.microversion import MAX
from placement_server.policies import operations
from placement_server.schemas import provider_tree as schemas
from placement_server.store import errors as store_errors
from placement_server.store.allocations import allocations
from placement_server.store.allocations.allocation_rows import Holder
from placement_server.store.providers.tree import Tree, TreeProvider, extend_tag


def show(request: Request) -> Response:
    """Show the tree of a provider.

    `include` adds `usages`, `allocations` or both. With `If-None-Match` and the present
    entity tag the answer is 304.
    """
    (provider_uuid,) = request.path_values
    request.require_json_accepted()
    request.authorise(operations.TREES_SHOW)
    included_parts = _included_parts(request)
    known_tags = ETagMatcher.parse(request.environ.get("HTTP_IF_NONE_MATCH", ""), strong=False)
    trees = request.services.candidates.trees
    if "HTTP_IF_NONE_MATCH" in request.environ and not included_parts:
        tag = trees.tag(provider_uuid)
        if tag is not None and tag in known_tags:
            return empty_response(304, *_headers(tag))
    holders: list[Holder] = []
    try:
        if "allocations" in included_parts:
            tree, holders = request.store.read(allocations.of_tree, provider_uuid)
            tag = tree.tag()
        else:
            tree, tag = trees.read(provider_uuid)
    except store_errors.ProviderNotFound as error:
        raise no_such_provider(provider_uuid) from error
    body = _representation(tree, holders, included_parts)
    if included_parts:
        tag = extend_tag(tag, _beyond_structure(body))
    if tag in known_tags:
        return empty_response(304, *_headers(tag))
    return json_response(body, *_headers(tag))


def _included_parts(request: Request) -> set[str]:
    names: set[str] = set()
    for name, value in request.params():
        check_query({name: value}, schemas.SHOW, request.version)
        names.update(value.split(","))
    return names


def _headers(tag: str) -> Headers:
    return [("etag", f'"{tag}"'), ("cache-control", "no-cache")]


def _representation(
    tree: Tree, holders: Sequence[Holder], included_parts: Collection[str]
) -> dict[str, Any]:
    parents = tree.parent_uuids()
    body: dict[str, Any] = {
        "root_provider_uuid": tree.root_uuid,
        "providers": [
            _provider(provider, parents[provider.id], usages="usages" in included_parts)
            for provider in tree.providers
        ],
    }
    if "allocations" in included_parts:
        body["allocations"] = {
            consumer.uuid: holder_body(consumer, rows, MAX) for consumer, rows in holders
        }
    return body


def _provider(provider: TreeProvider, parent_uuid: str | None, *, usages: bool) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "uuid": provider.uuid,
        "name": provider.name,
        "parent_provider_uuid": parent_uuid,
        "generation": provider.generation,
        "inventories": {
            name: {
                "total": inventory.total,
                "reserved": inventory.reserved,
                "min_unit": inventory.min_unit,
                "max_unit": inventory.max_unit,
                "step_size": inventory.step_size,
                "allocation_ratio": inventory.allocation_ratio,
            }
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


def _beyond_structure(body: Mapping[str, Any]) -> list[Any]:
    """Return the parts of a representation that claims change."""
    return [[provider.get("usages") for provider in body["providers"]], body.get("allocations")]
