"""Interface of placement for the scheduler; the report client is behind it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from compute_agent.placement.allocations.amounts import Amounts
from compute_agent.placement.candidates import Explanation

Microversion = tuple[int, int]


@dataclass(frozen=True, slots=True)
class ClaimRefusal:
    """A claim that placement refused because of its providers; another candidate may be granted.

    :param provider: the provider that had too little of ``resource_class``; both are empty where
        placement did not name them, lost races of its own, or no longer has a provider.
    :param detail: placement's explanation.
    """

    provider: str = ""
    resource_class: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ClaimAnswer:
    """What became of a claim with alternatives.

    :param chosen: the position of the candidate that is claimed; `None` when none is.
    :param refusals: why candidates were not, by their position. At least one when none is claimed;
        those that are neither chosen nor in it were not tried.
    """

    position: int | None
    refusals: Mapping[int, ClaimRefusal]


class UnknownName(Exception):
    """Placement does not know a trait or resource class of the question, so nothing can match."""


@dataclass(frozen=True, slots=True)
class Holding:
    """What a consumer holds: provider to class to amount; and the record as placement wrote it."""

    allocations: Amounts
    record: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class WantedHolding:
    """What a consumer shall hold, instead of what it was read to hold.

    ``project_id`` and ``user_id`` are for a consumer that holds nothing yet.
    """

    holding: Holding
    allocations: Amounts
    consumer_type: str
    project_id: str = ""
    user_id: str = ""
    mappings: Mapping[str, Sequence[str]] | None = None


class Placement(Protocol):
    """Placement, as the scheduler sees it.

    Every method raises `PlacementUnavailable` when there is no usable answer, and another
    `PlacementError` when placement refuses for a reason that is not named at the method.
    """

    def errand(self, request_id: str = "") -> AbstractContextManager[str]:
        """Let all requests of a block carry one id, a new one unless given; yield it."""

    def understands_extensions(self) -> bool:
        """Whether questions may use this project's extensions of the API."""

    def allocation_candidates(
        self,
        parameters: Sequence[tuple[str, str]],
        minimum: Microversion,
        *,
        is_extended: bool = False,
    ) -> tuple[Mapping[str, Any], Microversion]:
        """Return the answer to a question, and the microversion in which it was asked.

        :param is_extended: the question uses extensions.
        :raises UnknownName: see there.
        """

    def explanation(self, parameters: Sequence[tuple[str, str]]) -> Explanation | None:
        """Return placement's explanation of a question, `None` where it has none to give."""

    def matching_providers(self, parameters: Sequence[tuple[str, str]]) -> Mapping[str, str]:
        """Return the providers that a listing finds, each with its root; none of unknown names."""

    def claim(
        self,
        consumer: str,
        allocation_request: Mapping[str, Any],
        *,
        project_id: str,
        user_id: str,
        microversion: Microversion,
        consumer_type: str,
    ) -> ClaimRefusal | None:
        """Claim for a consumer that has nothing yet; return why not, `None` if it is claimed.

        :raises AllocationUpdateFailed: the consumer holds something else already.
        """

    def takes_alternatives(self) -> bool:
        """Whether `claim_first` takes several candidates."""

    def claim_first(
        self,
        consumer: str,
        allocation_requests: Sequence[Mapping[str, Any]],
        *,
        project_id: str,
        user_id: str,
        consumer_type: str,
    ) -> ClaimAnswer:
        """Claim the first of these candidates that fits, in one request; else as `claim`.

        Only the first is tried where placement turns out to take no alternatives any more.

        :raises AllocationUpdateFailed: the consumer holds something else already.
        """

    def holding(self, consumer: str) -> Holding:
        """Return what a consumer holds; no allocations if it holds nothing."""

    def consumers_on(
        self, root: str, providers: Collection[str], consumers: Collection[str]
    ) -> frozenset[str]:
        """Return those of `consumers` that hold something of the tree of `root`.

        One request where placement shows whole trees; else one for each provider or each consumer,
        whichever are fewer.

        :param providers: those of the tree of which anything can be held.
        """

    def release(self, consumer: str) -> bool:
        """Give back whatever a consumer holds; return whether it held anything."""

    def release_exactly(self, consumer: str, holding: Holding) -> None:
        """Give back a consumer's allocations if nobody changed them since they were read."""

    def exchange(self, wanted_holdings: Mapping[str, WantedHolding]) -> ClaimRefusal | None:
        """Let every consumer hold what is wanted, all or none; return why not, `None` if done.

        :raises AllocationMoveFailed: one of them was changed since it was read.
        """

    def sharing(self, uuids: Collection[str]) -> frozenset[str]:
        """Return those of the providers `uuids` that other trees may use."""

    def aggregates(self, uuid: str) -> frozenset[str]:
        """Return the aggregates that a provider is in."""

    def tree(self, root: str) -> Mapping[str, frozenset[str]]:
        """Return the providers of one tree, each with its traits."""

    def provider_names(self, uuids: Collection[str]) -> Mapping[str, str]:
        """Return the names of the providers among `uuids` that exist."""

    def provider_roots(self, uuids: Collection[str]) -> Mapping[str, str]:
        """Return the root of each of the providers among `uuids` that exist."""

    def root_named(self, name: str) -> str | None:
        """Return the uuid of the root provider of this name, None if there is none."""

    def roots_by_layout(self) -> tuple[frozenset[str], frozenset[str]]:
        """Return the roots of all hosts, and of those that have NUMA cells."""

    def traits_beginning(self, prefix: str) -> frozenset[str]:
        """Return the traits that placement knows and that begin with `prefix`."""
