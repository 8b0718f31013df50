"""GET /candidate_explanation: why a query has few allocation candidates or none.

An extension: takes the query of GET /allocation_candidates, and whoever may ask that may ask this.
"""

from __future__ import annotations

from typing import Any

from placement_server.api import allocation_candidates
from placement_server.api.request import Request
from placement_server.api.response import Response, cache_headers, json_response
from placement_server.candidates.explain import Explanation, Step


def show(request: Request) -> Response:
    """Tell how many providers each filter left, and why trees have no candidate.

    What trees are asked for is every first candidate, so ``limit`` changes nothing.
    """
    explained = allocation_candidates.searched(
        request, request.services.candidates.explain, "explained"
    )
    return json_response(_shown(explained), *cache_headers(request.version))


def _shown(explained: Explanation) -> dict[str, Any]:
    return {
        "trees": explained.trees,
        "steps": [_step(step) for step in explained.steps],
        "trees_left": explained.trees_tried,
        "trees_failed": [
            {"reason": reason, "trees": count, "example": explained.examples[reason]}
            for reason, count in explained.combinations_failed.most_common()
        ],
        "sentences": explained.lines(),
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
