"""Handlers of /provider_trees/{uuid}: a whole tree of resource providers in one request.

An extension. A tree has an entity tag, which says all that a tree is but for what is used of it:
names, parents, inventories, traits and aggregates. Claims do not change it.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from typing import Any, Final

from webob.etag import AnyETag, ETagMatcher

from placement_server import errors
from placement_server.api.extensions.provider_tree_body import tree_write
from placement_server.api.request import Request, check_query
from placement_server.api.resources.resource_providers import no_such_provider
from placement_server.api.response import Headers, Response, empty_response, json_response
from placement_server.policies import operations
from placement_server.schemas import provider_tree as schemas
from placement_server.schemas.validation import pointer
from placement_server.store import errors as store_errors
from placement_server.store.trees import replacement, tree_rows
from placement_server.store.trees.tree import (
    Holdings,
    Tree,
    TreeProvider,
    extend_tag,
    structure_part,
)
from placement_server.store.trees.tree_write import (
    GenerationRequired,
    Reason,
    TreeChanged,
    TreeConflicts,
    TreeContradiction,
    TreeMalformed,
)

_UNCACHED: Final = ("cache-control", "no-cache")
_MINIMAL: Final = ("preference-applied", "return=minimal")

_CODES: Final[Mapping[Reason, str]] = {
    Reason.INVENTORY_IN_USE: errors.INVENTORY_INUSE,
    Reason.PROVIDER_IN_USE: errors.PROVIDER_INUSE,
    Reason.PROVIDER_HAS_CHILDREN: errors.PROVIDER_CANNOT_DELETE_PARENT,
    Reason.NAME_TAKEN: errors.DUPLICATE_NAME,
    Reason.CONSUMER_GENERATION: errors.CONCURRENT_UPDATE,
}
"""The codes of the reasons that have one of their own."""


def show(request: Request) -> Response:
    """Show the tree of a provider.

    ``include`` adds ``usages``, ``allocations`` or both. With ``If-None-Match`` and the present
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
    holders: list[Holdings] = []
    try:
        if "allocations" in included_parts:
            tree, holders = request.store.read(tree_rows.read_with_holdings, provider_uuid)
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


def replace(request: Request) -> Response:
    """Replace the tree with this root, all or nothing.

    The request names the tree that it was made for: ``If-Match`` with an entity tag of GET, or
    ``If-None-Match: *`` for a tree that does not exist. With ``Prefer: return=minimal`` the answer
    is 204; so it is where the whole tree was deleted.
    """
    (root_uuid,) = request.path_values
    request.require_json_content()
    request.authorise(operations.TREES_UPDATE)
    tags = _precondition(request)
    write = tree_write(root_uuid, request.pointed_json(schemas.REPLACE), tags)
    try:
        tree = request.store.write(replacement.apply, write)
    except TreeMalformed as error:
        raise errors.BadRequest(str(error), pointer=pointer(*error.path)) from error
    except GenerationRequired as error:
        raise errors.PreconditionRequired(
            str(error), _bodies_of_moved(error.generations)
        ) from error
    except TreeChanged as error:
        raise errors.PreconditionFailed(
            str(error),
            _bodies_of_moved(error.generations),
            None if error.tag is None else f'"{error.tag}"',
        ) from error
    except TreeConflicts as error:
        raise _conflict(error) from error
    except store_errors.ConcurrentUpdate as error:
        raise errors.Conflict(str(error), code=errors.CONCURRENT_UPDATE) from error
    if tree is None:
        return empty_response(204, _UNCACHED)
    headers = _headers(tree.tag())
    if _wants_minimum(request):
        return empty_response(204, *headers, _MINIMAL)
    return json_response(_representation(tree, [], ()), *headers)


def _included_parts(request: Request) -> set[str]:
    names: set[str] = set()
    for name, value in request.params():
        check_query({name: value}, schemas.SHOW, request.version)
        names.update(value.split(","))
    return names


def _precondition(request: Request) -> Container[str] | None:
    """Return the tags one of which the tree must have; `None` when it must not exist."""
    if_match = request.environ.get("HTTP_IF_MATCH")
    if_none_match = request.environ.get("HTTP_IF_NONE_MATCH")
    if if_match is not None and if_none_match is not None:
        raise errors.BadRequest("The request has both If-Match and If-None-Match.")
    if if_match is not None:
        matcher = ETagMatcher.parse(if_match)
        # A tag that covers usages and allocations too names the same structure.
        return matcher if matcher is AnyETag else set(map(structure_part, matcher.etags))
    if if_none_match is None:
        raise errors.PreconditionRequired(
            "Name the tree that the request was made for: If-Match with the ETag of GET, or "
            "If-None-Match: * for a tree that does not exist."
        )
    if if_none_match.strip() != "*":
        raise errors.BadRequest(f"If-None-Match is {if_none_match}, here it can only be *.")
    return None


def _wants_minimum(request: Request) -> bool:
    preferences = request.environ.get("HTTP_PREFER", "").split(",")
    return "return=minimal" in (preference.strip().lower() for preference in preferences)


def _headers(tag: str) -> Headers:
    return [("etag", f'"{tag}"'), _UNCACHED]


def _bodies_of_moved(generations: Mapping[str, int]) -> list[dict[str, Any]]:
    return [{"uuid": uuid, "generation": number} for uuid, number in generations.items()]


def _conflict(error: TreeConflicts) -> errors.TreeConflict:
    """Return the 409 with all that contradicts the request."""
    return errors.TreeConflict(
        str(error), [_conflict_entry(conflict) for conflict in error.conflicts]
    )


def _conflict_entry(conflict: TreeContradiction) -> dict[str, Any]:
    return {
        "code": _CODES.get(conflict.reason, errors.UNDEFINED),
        "reason": conflict.reason.value,
        "detail": conflict.detail,
        "provider": conflict.provider,
        "resource_class": conflict.resource_class,
        "consumer": conflict.consumer,
        "asked": conflict.requested_amount,
        "free": conflict.free,
    }


def _representation(
    tree: Tree, holders: Sequence[Holdings], included_parts: Collection[str]
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
        body["allocations"] = {holder.consumer.uuid: _holdings(holder) for holder in holders}
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
        "traits": sorted(provider.trait_ids),
        "aggregates": sorted(provider.aggregate_ids),
    }
    if usages:
        entry["usages"] = {
            name: inventory.used for name, inventory in sorted(provider.stock.items())
        }
    return entry


def _holdings(holder: Holdings) -> dict[str, Any]:
    return {
        "allocations": {
            provider: {"resources": dict(sorted(amounts.items()))}
            for provider, amounts in sorted(holder.amounts.items())
        },
        "project_id": holder.consumer.project_id,
        "user_id": holder.consumer.user_id,
        "consumer_generation": holder.consumer.generation,
        "consumer_type": holder.consumer.consumer_type or "unknown",
    }


def _beyond_structure(body: Mapping[str, Any]) -> list[Any]:
    """Return the parts of a representation that claims change."""
    return [[provider.get("usages") for provider in body["providers"]], body.get("allocations")]
