"""Handler of GET /candidate_explanation: why a query has few allocation candidates or none.

An extension: takes the query of GET /allocation_candidates, and is allowed to the same callers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from placement_server.api.request import Request
from placement_server.api.resources import allocation_candidates
from placement_server.api.response import Response, cache_headers, json_response
from placement_server.candidates.closest.report import Report, Short
from placement_server.candidates.explain import Explanation, FilterStep
from placement_server.microversion import Microversion

#: The version of the extensions that brought the closest changes.
CLOSEST: Final = Microversion(1, 1)


def show(request: Request) -> Response:
    """Show how many providers each filter left, and why trees have no candidate.

    Every tree is searched for its first candidate. In placement-ext 1.0 ``limit`` changes nothing.
    From 1.1 on the smallest changes of the query that would give a candidate are shown as well, at
    most ``limit`` sets of one or two changes (5), and the ten providers that lack the smallest
    share of some amount. They are looked for until ``search_deadline``; ``complete`` is false when
    some were not tried. 503 when the first search, without changes, gives up.
    """
    candidates = request.services.candidates
    headers = cache_headers(request.version)
    if request.extensions is None or request.extensions < CLOSEST:
        explanation = allocation_candidates.search_for(request, candidates.explain, "explained")
        return json_response(body_of(explanation), *headers)
    explanation, report = allocation_candidates.search_for(
        request, candidates.explain_with_closest, "explained"
    )
    return json_response(body_with_closest(explanation, report), *headers)


def body_of(explanation: Explanation) -> dict[str, Any]:
    """Return the body of the answer in 1.0."""
    return {
        "trees": explanation.trees,
        "steps": [_step(step) for step in explanation.steps],
        "trees_left": explanation.trees_tried,
        "trees_failed": [
            {"reason": reason, "trees": count, "example": explanation.examples[reason]}
            for reason, count in explanation.combinations_failed.most_common()
        ],
        "sentences": explanation.lines(),
    }


def body_with_closest(explanation: Explanation, report: Report | None) -> dict[str, Any]:
    """Return the body of the answer from 1.1 on.

    :param report: None where there are candidates.
    """
    body = body_of(explanation) | _shown_report(report)
    body["sentences"] = [*_conclusions(explanation, report), *explanation.lines()]
    return body


def _shown_report(report: Report | None) -> dict[str, Any]:
    if report is None:
        return {"closest": [], "short": [], "complete": True}
    return {
        "closest": [
            {
                "changes": [change.entry(to) for change, to in reported_set.change_set.changes],
                "trees": reported_set.change_set.trees,
                "example": reported_set.example,
            }
            for reported_set in report.sets
        ],
        "short": [_short(short) for short in report.short],
        "complete": report.complete,
    }


def _short(short: Short) -> dict[str, Any]:
    entry = {
        "group": short.group,
        "provider": short.provider,
        "name": short.name,
        "resource_class": short.resource_class,
        "asked": short.requested_amount,
        "free": short.room.free,
        "capacity": short.room.capacity,
        "held_by": short.room.consumers,
    }
    unit = short.room.unit_against(short.requested_amount)
    return entry if unit is None else entry | {unit: getattr(short.room, unit)}


def _conclusions(explanation: Explanation, report: Report | None) -> Iterator[str]:
    """Yield what a reader wants to know first."""
    if report is None:
        trees, all_trees = explanation.trees_with_candidates, explanation.trees
        noun = "tree" if all_trees == 1 else "trees"
        yield f"{trees} of {all_trees} {noun} {'has' if trees == 1 else 'have'} candidates."
        return
    yield from report.lines()
    if explanation.dead_ends:
        group, _count = explanation.dead_ends.most_common(1)[0]
        yield f"Group '{group}' was most often the one that no provider was left for."


def _step(step: FilterStep) -> dict[str, Any]:
    # A group may have the suffix "root" as well.
    of_roots = step.group == "root" and step.filter.startswith("root_")
    entry: dict[str, Any] = {"group": None if of_roots else step.group, "filter": step.filter}
    if step.providers is None:
        entry["trees_rejected"] = step.trees_rejected
    else:
        entry["providers_left"] = step.providers
    return entry
