"""Types of the answers about candidates: searches, explanations of them, and plans to make room."""

from __future__ import annotations

from functools import lru_cache
from typing import Generic, TypedDict, TypeVar

from msgspec import Raw, Struct

from compute_agent.placement.answers import Held
from compute_agent.programs.decoding import Amounts, Whole, decode

T = TypeVar("T")


class ClassCount(Struct, frozen=True, gc=False):
    """Capacity and use of a resource class on one provider."""

    capacity: Whole
    used: Whole


class Summary(Struct, frozen=True, gc=False):
    """A provider beside the candidates; its traits are decoded when they are looked at."""

    root_provider_uuid: str
    parent_provider_uuid: str | None
    traits: Raw
    resources: dict[str, ClassCount]


@lru_cache(maxsize=4096)
def _trait_set(content: bytes) -> frozenset[str]:
    return frozenset(decode(content, list[str]))


def traits_of(summary: Summary) -> frozenset[str]:
    """Return the traits of a provider: one set for all hosts of a kind, in all answers.

    :raises ValueError: they are no list of texts.
    """
    return _trait_set(bytes(summary.traits))


class HeldAmounts(Struct, frozen=True, gc=False):
    """What a candidate takes from one provider."""

    resources: Amounts


class AllocationRequest(Struct, frozen=True, gc=False):
    """A candidate; its mappings, from 1.34 on, are decoded by the caller that claims it."""

    allocations: dict[str, HeldAmounts]
    mappings: Raw = Raw(b"null")


class CandidateList(Struct, frozen=True):
    """Candidates, and the summaries by provider."""

    allocation_requests: list[AllocationRequest]
    provider_summaries: dict[str, Summary]


class SupposedAnswers(Struct, Generic[T], frozen=True):
    """The answers to questions about a supposed fleet."""

    answers: list[T]


class ClosestChanges(TypedDict):
    """Changes of a query with which it would have candidates."""

    changes: list[dict[str, str | Whole | bool | list[str] | None]]
    trees: Whole
    example: str


class Explanation(TypedDict):
    """An explanation of the candidates that a query has, of which this is read here.

    :ivar sentences: all of it, to be read.
    :ivar closest: sets of changes of the request with which it would have candidates.
    """

    sentences: list[str]
    closest: list[ClosestChanges]


class PlannedTree(TypedDict):
    """A tree that a plan names; one that is gone by now has no name."""

    root: str
    name: str | None


class PlannedPlace(TypedDict):
    """Where a request, or a consumer that moves, goes."""

    to: PlannedTree
    allocations: dict[str, Held]
    mappings: dict[str, list[str]]


_MoveSource = TypedDict("_MoveSource", {"from": PlannedTree})


class PlannedMove(PlannedPlace, _MoveSource):
    """The move of a consumer."""

    consumer: str


class Plan(TypedDict):
    """Moves after which a request fits, or trees are empty."""

    moves: list[PlannedMove]
    places: list[PlannedPlace]
    memory_mb: Whole


class Room(TypedDict):
    """Plans that make room, and whether none is better."""

    plans: list[Plan]
    proved: bool
