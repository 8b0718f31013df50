"""Handler of GET /candidate_explanation: why a query has few allocation candidates or none.

An extension: takes the query of GET /allocation_candidates, and is allowed to the same callers.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from placement_server.api.request import Request
from placement_server.api.resources import allocation_candidates
from placement_server.api.response import Response, cache_headers, json_response
from placement_server.candidates.closest.closest import ClosestRelaxations
from placement_server.candidates.explain import Explanation
from placement_server.negotiation.microversion import Microversion
from placement_server.schemas.validation import (
    COUNT,
    POSITIVE,
    TEXT,
    TEXT_OR_NULL,
    UUID,
    array_of,
    exact_object,
    optional,
)

_ANSWER: Final[dict[str, Any]] = {
    "trees": COUNT,
    "steps": array_of(
        optional(
            exact_object(
                group=TEXT_OR_NULL, filter=TEXT, providers_left=COUNT, trees_rejected=COUNT
            ),
            "providers_left",
            "trees_rejected",
        )
    ),
    "trees_left": COUNT,
    "trees_failed": array_of(exact_object(reason=TEXT, trees=COUNT, example=UUID)),
    "sentences": array_of(TEXT),
}

EXPLANATION: Final = exact_object(**_ANSWER)
"""`group` is a suffix, "" for the unsuffixed group, null for what is asked of roots."""

_DROPPED: Final = (
    "drop_trait",
    "allow_trait",
    "drop_aggregate",
    "allow_aggregate",
    "drop_in_tree",
    "drop_same_subtree",
    "drop_group_policy",
    "drop_isolate",
    "drop_root_required",
)
_CHANGE: Final = {
    "oneOf": [
        exact_object(group=TEXT, resource_class=TEXT, **{"from": POSITIVE}, to=POSITIVE),
        *(exact_object(group=TEXT_OR_NULL, **{key: TEXT}) for key in _DROPPED),
    ]
}
_SHORTAGE: Final = exact_object(
    group=TEXT,
    provider=UUID,
    name=TEXT,
    resource_class=TEXT,
    asked=POSITIVE,
    free=COUNT,
    capacity={"type": "integer"},
    held_by=COUNT,
    min_unit=POSITIVE,
    max_unit=POSITIVE,
    step_size=POSITIVE,
)

EXPLANATION_WITH_CLOSEST: Final = exact_object(
    **_ANSWER,
    closest=array_of(
        exact_object(
            changes=array_of(_CHANGE, minItems=1, maxItems=2), trees=POSITIVE, example=UUID
        )
    ),
    short=array_of(optional(_SHORTAGE, "min_unit", "max_unit", "step_size")),
    complete={"type": "boolean"},
)
"""From placement-ext 1.1 on. In a change `group` is a suffix, null for the query as a whole and
for what is asked of roots. A unit of an inventory is shown where it forbids the amount."""

CLOSEST: Final = Microversion(1, 1)
"""The version of the extensions that brought the closest changes."""


def show(request: Request) -> Response:
    """Show how many providers each filter left, and why trees have no candidate.

    Every tree is searched for its first candidate. In placement-ext 1.0 `limit` changes nothing.
    From 1.1 on the smallest changes of the query that would give a candidate are shown as well, at
    most `limit` sets of one or two changes (5), and the ten providers that lack the smallest
    share of some amount. They are looked for until `search_deadline`; `complete` is false when
    some were not tried. 503 when the first search, without changes, gives up.
    """
    candidates = request.services.candidates
    headers = cache_headers(request.version)
    if request.extensions is None or request.extensions < CLOSEST:
        explanation = allocation_candidates.search_for(request, candidates.explain, "explained")
        return json_response(body_of(explanation), *headers)
    explain = partial(candidates.explain, closest=True)
    explanation = allocation_candidates.search_for(request, explain, "explained")
    return json_response(body_with_closest(explanation), *headers)


def body_of(explanation: Explanation) -> dict[str, Any]:
    """Return the body of the answer in 1.0."""
    return {
        "trees": explanation.trees,
        "steps": explanation.steps,
        "trees_left": explanation.trees_tried,
        "trees_failed": [
            {"reason": reason, "trees": count, "example": explanation.examples[reason]}
            for reason, count in explanation.combinations_failed.most_common()
        ],
        "sentences": explanation.lines(),
    }


def body_with_closest(explanation: Explanation) -> dict[str, Any]:
    """Return the body of the answer from 1.1 on."""
    body = body_of(explanation) | _shown_closest(explanation.closest)
    body["sentences"] = [*_conclusions(explanation), *explanation.lines()]
    return body


def _shown_closest(closest: ClosestRelaxations | None) -> dict[str, Any]:
    if closest is None:
        return {"closest": [], "short": [], "complete": True}
    return {
        "closest": [
            {
                "changes": [relaxation.entry(to) for relaxation, to in relaxation_set.relaxations],
                "trees": relaxation_set.trees,
                "example": closest.uuid(relaxation_set.example),
            }
            for relaxation_set in closest.sets
        ],
        "short": [
            {
                "group": shortage.group,
                "provider": closest.uuid(shortage.slot),
                "name": closest.name(shortage.slot),
                "resource_class": shortage.resource_class,
                "asked": shortage.requested_amount,
                "free": room.free,
                "capacity": room.capacity,
                "held_by": room.consumers,
                **({} if unit is None else {unit: getattr(room, unit)}),
            }
            for shortage, room in closest.short()
            for unit in [room.unit_against(shortage.requested_amount)]
        ],
        "complete": closest.complete,
    }


def _conclusions(explanation: Explanation) -> Iterator[str]:
    """Yield what a reader wants to know first."""
    if explanation.closest is None:
        trees, all_trees = explanation.trees_with_candidates, explanation.trees
        noun = "tree" if all_trees == 1 else "trees"
        yield f"{trees} of {all_trees} {noun} {'has' if trees == 1 else 'have'} candidates."
        return
    yield from explanation.closest.lines()
    if explanation.dead_ends:
        group, _count = explanation.dead_ends.most_common(1)[0]
        yield f"Group '{group}' was most often the one that no provider was left for."
