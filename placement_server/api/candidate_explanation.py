"""Handler of GET /candidate_explanation: why a query has few allocation candidates or none.

An extension: takes the query of GET /allocation_candidates, and is allowed to the same callers.
"""

from __future__ import annotations

from typing import Any

from placement_server.api import allocation_candidates
from placement_server.api.request import Request
from placement_server.api.response import Response, cache_headers, json_response
from placement_server.candidates.explain import Explanation, Step


def show(request: Request) -> Response:
    """Show how many providers each filter left, and why trees have no candidate.

    Every tree is searched for its first candidate, so ``limit`` changes nothing.
    """
    explanation = allocation_candidates.searched(
        request, request.services.candidates.explain, "explained"
    )
    return json_response(shown(explanation), *cache_headers(request.version))


def shown(explanation: Explanation) -> dict[str, Any]:
    """Return the body of the answer."""
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


def _step(step: Step) -> dict[str, Any]:
    # A group may have the suffix "root" as well.
    of_roots = step.group == "root" and step.filter.startswith("root_")
    shown: dict[str, Any] = {"group": None if of_roots else step.group, "filter": step.filter}
    if step.providers is None:
        shown["trees_rejected"] = step.trees_rejected
    else:
        shown["providers_left"] = step.providers
    return shown
