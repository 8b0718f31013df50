"""Handlers of GET /capacity and GET /fragmentation: how much more fits, and why not more.

Extensions. Both are bounded as a search for allocation candidates is: `search_deadline`,
`search_memory` and the places for heavy searches; 503 `placement.search_gave_up` beyond.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from msgspec import to_builtins

from placement_server import limits
from placement_server.api.request import Request, check_query
from placement_server.api.resources import allocation_candidates
from placement_server.api.response import Response, cache_headers, json_response
from placement_server.candidates.capacity import Capacity
from placement_server.candidates.errors import QueryError
from placement_server.candidates.fragmentation import Amounts, ClassFragmentation
from placement_server.candidates.query.filters import (
    FilterSize,
    check_limits,
    parse_member_of,
    parse_resources,
)
from placement_server.candidates.query.query import RequestGroup
from placement_server.schemas.validation import (
    COUNT,
    POSITIVE,
    TEXT,
    TEXT_OR_NULL,
    UUID,
    array_of,
    exact_object,
    map_of,
    query_of,
)
from placement_server.store.providers import provider_rows

CAPACITY: Final = exact_object(
    at_least=COUNT,
    at_most=COUNT,
    exact={"type": "boolean"},
    trees=array_of(exact_object(root=UUID, name=TEXT_OR_NULL, at_least=COUNT, at_most=POSITIVE)),
    limited_by=map_of(POSITIVE),
)
"""`name` is null of a tree that is supposed, or was deleted while the answer was made."""

FRAGMENTATION_QUERY: Final = query_of(resources=TEXT, member_of=TEXT)
"""`resources` may be repeated, a shape each; `member_of` too."""

FRAGMENTATION: Final = exact_object(
    resource_classes=map_of(
        exact_object(capacity=COUNT, used=COUNT, free=COUNT, largest_free=COUNT, stranded=COUNT)
    ),
    shapes=array_of(
        exact_object(
            resources=map_of(POSITIVE),
            at_least=COUNT,
            at_most=COUNT,
            together=COUNT,
            ratio={"type": ["number", "null"], "minimum": 0, "maximum": 1},
        )
    ),
)
"""`ratio` is null where nothing would fit even if what is free lay together."""


def show(request: Request) -> Response:
    """Show how many further claims of a query would succeed, one after the other.

    `limit` bounds the trees that are listed, those with the most room first; the sums are over
    all trees. Amounts beyond 2**40 are counted as 2**40.
    """
    count = allocation_candidates.search_for(
        request, request.services.candidates.capacity, "counted"
    )
    return json_response(body_of(request, count), *cache_headers(request.version))


def body_of(request: Request, capacity: Capacity) -> dict[str, Any]:
    """Return the body of the answer."""
    return {
        "at_least": capacity.at_least,
        "at_most": capacity.at_most,
        "exact": capacity.exact,
        "trees": _trees(request, capacity),
        "limited_by": capacity.limited_by,
    }


def _trees(request: Request, capacity: Capacity) -> list[dict[str, Any]]:
    roots = capacity.roots[: capacity.limit].tolist()
    uuids = [capacity.index.columns.uuid[slot] for slot in roots]
    names = request.store.read(provider_rows.names, uuids)
    low, high = capacity.low.tolist(), capacity.high.tolist()
    return [
        {"root": uuid, "name": names.get(uuid), "at_least": at_least, "at_most": at_most}
        for uuid, at_least, at_most in zip(uuids, low, high, strict=False)
    ]


def show_fragmentation(request: Request) -> Response:
    """Show what is free of each class, what of it is stranded, and how many of each shape fit.

    At most 100 shapes, each a value of `resources`, which are taken as an unsuffixed group is.
    """
    check_query(request.last_params(), FRAGMENTATION_QUERY, request.version)
    with allocation_candidates.counted_search(request, "counted"):
        shapes = [parse_resources(value) for value in request.all_of("resources")]
        if len(shapes) > limits.SHAPES:
            raise QueryError(limits.too_many("resources", len(shapes), "shapes", limits.SHAPES))
        terms, forbidden_aggregates = parse_member_of(request.all_of("member_of"), request.version)
        amounts = [len(shape) for shape in shapes]
        check_limits(
            [
                FilterSize("resources", "resource classes", sum(amounts), sum(amounts)),
                FilterSize.of("member_of", "aggregates", terms, forbidden_aggregates),
            ]
        )
        members = RequestGroup("", member_of=terms, forbidden_aggregates=forbidden_aggregates)
        classes, counts = request.services.candidates.fragmentation(
            shapes, members, request.give_turn_back
        )
    return json_response(
        {
            "resource_classes": to_builtins(classes),
            "shapes": list(map(partial(_shape, classes), shapes, counts)),
        },
        *cache_headers(request.version),
    )


def _shape(
    classes: Mapping[str, ClassFragmentation], amounts: Amounts, count: Capacity
) -> dict[str, Any]:
    together = min(
        classes[name].free // amount if name in classes else 0 for name, amount in amounts.items()
    )
    return {
        "resources": amounts,
        "at_least": count.at_least,
        "at_most": count.at_most,
        "together": together,
        "ratio": count.at_least / together if together else None,
    }
