"""Answers of placement for tests: hosts as trees, written in a few lines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from compute_agent.placement.candidate_answers import CandidateList, ClassCount
from compute_agent.programs.decoding import decode
from compute_agent.scheduler.placement import candidates as answer
from compute_agent.scheduler.placement.candidates import AllocationCandidates


def counts(
    capacity: Mapping[str, int], used: Mapping[str, int] | None = None
) -> dict[str, ClassCount]:
    """What a provider has of each class, and what is used."""
    return {
        name: ClassCount(amount, (used or {}).get(name, 0)) for name, amount in capacity.items()
    }


def summary(
    root: str,
    resources: Mapping[str, tuple[int, int]] | None = None,
    *traits: str,
    parent: str | None = None,
) -> dict[str, Any]:
    """One provider summary; resources as class to (capacity, used)."""
    return {
        "resources": {
            name: {"capacity": capacity, "used": used}
            for name, (capacity, used) in (resources or {}).items()
        },
        "traits": list(traits),
        "parent_provider_uuid": parent,
        "root_provider_uuid": root,
    }


def candidate(
    allocations: Mapping[str, Mapping[str, int]], **mappings: list[str]
) -> dict[str, Any]:
    """One allocation request; without mappings everything is the unsuffixed group's."""
    return {
        "allocations": {
            uuid: {"resources": dict(allocation)} for uuid, allocation in allocations.items()
        },
        "mappings": mappings or {"": list(allocations)},
    }


def body(
    candidates: list[dict[str, Any]], summaries: Mapping[str, dict[str, Any]]
) -> dict[str, Any]:
    """A whole answer as placement writes it."""
    return {"allocation_requests": candidates, "provider_summaries": dict(summaries)}


def answered(
    candidates: list[dict[str, Any]], summaries: Mapping[str, dict[str, Any]], shape: str = "flat"
) -> AllocationCandidates:
    """A whole answer, read."""
    return answer.read(decoded(body(candidates, summaries)), shape)


def decoded(document: object) -> CandidateList:
    """An answer as the client library returns it."""
    return decode(json.dumps(document).encode(), CandidateList)
