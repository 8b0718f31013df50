"""State of the hosts of one request, made from placement's answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from compute_agent.fitting.plan import Cost
from compute_agent.scheduler.fleet.aggregates import Aggregate
from compute_agent.scheduler.fleet.announcements import Announcement
from compute_agent.scheduler.placement.candidates import (
    AllocationCandidates,
    Candidate,
    ProviderSummary,
    ancestry,
)

NO_CELL = "00000000-0000-0000-0000-000000000000"
"""The cell of a host of which none is known: a deployment of one cell need not name it."""


class HostState(NamedTuple):
    """One host: a tree of providers, and the candidates on it.

    :param uuid: of the root provider.
    :param name: of the root provider.
    :param providers: every provider of the tree, and the shared ones its candidates use.
    :param candidates: ways to serve the request here, the best first.
    :param aggregates: the aggregates it is in.
    :param instances: those of the instances that the request names which live here.
    :param announcement: the agent's last one, None without a bus.
    :param alive: whether the agent announced itself lately; True without a bus.
    :param claimed_here: instances of this request placed here so far.
    :param usual_cell: the cell of hosts that announce none.
    :param cost: of the plan of the guest here, None where none was made yet.
    """

    uuid: str
    name: str
    providers: Mapping[str, ProviderSummary]
    candidates: tuple[Candidate, ...]
    aggregates: tuple[Aggregate, ...] = ()
    instances: frozenset[str] = frozenset()
    announcement: Announcement | None = None
    alive: bool = True
    claimed_here: int = 0
    usual_cell: str = NO_CELL
    cost: Cost | None = None

    @property
    def known_as(self) -> frozenset[str]:
        """The names that a request may give it: the node's, and that of the service."""
        service = {self.announcement.host} if self.announcement else set()
        return frozenset({self.name} | service)

    @property
    def cell(self) -> str:
        """The cell that the host is in, as its agent announces it."""
        attributes = self.announcement.attributes if self.announcement else {}
        return str(attributes.get("cell_uuid") or self.usual_cell).lower()

    def ancestry(self, provider: str) -> tuple[str, ...]:
        """Return a provider and those above it, up to the root, as far as they are known."""
        return ancestry(provider, self.providers)

    @property
    def tree(self) -> tuple[ProviderSummary, ...]:
        """The providers of the host's own tree."""
        root = self.uuid
        return tuple([provider for provider in self.providers.values() if provider.root == root])

    def free(self, resource_class: str) -> int:
        """Return what is left of a class in the whole tree."""
        return sum(provider.free(resource_class) for provider in self.tree)

    def capacity(self, resource_class: str) -> int:
        """Return how much of a class the whole tree has."""
        return sum(provider.capacity(resource_class) for provider in self.tree)

    @property
    def traits(self) -> frozenset[str]:
        """Traits of any provider of the tree."""
        return frozenset().union(*(provider.traits for provider in self.tree))

    def metadata(self, key: str) -> frozenset[str]:
        """Return the values that the metadata `key` has in the host's aggregates."""
        return frozenset(
            aggregate.metadata[key] for aggregate in self.aggregates if key in aggregate.metadata
        )

    def using(self, candidate: Candidate, *, claimed_count: int = 0) -> HostState:
        """Return this host with a candidate's amounts used, and the candidates that still fit."""
        if not claimed_count and self.providers.keys().isdisjoint(candidate.allocations):
            return self
        providers = dict(self.providers)
        for uuid, resources in candidate.allocations.items():
            if uuid in providers:
                providers[uuid] = providers[uuid].using(resources)
        return self._replace(
            providers=providers,
            candidates=tuple(
                candidate for candidate in self.candidates if fits(candidate, providers)
            ),
            claimed_here=self.claimed_here + claimed_count,
            cost=None,
        )


def fits(candidate: Candidate, providers: Mapping[str, ProviderSummary]) -> bool:
    """Whether every provider has as much left as a candidate takes from it."""
    return all(
        providers[uuid].free(name) >= amount
        for uuid, resources in candidate.allocations.items()
        for name, amount in resources.items()
    )


def merge(answers: Iterable[AllocationCandidates]) -> AllocationCandidates:
    """Return several answers as one; a candidate that is in two of them is taken once."""
    answers = tuple(answers)
    offering = [answer for answer in answers if answer.candidates]
    if len(offering) == 1:
        return replace(offering[0], returned_count=sum(answer.returned_count for answer in answers))
    providers: dict[str, ProviderSummary] = {}
    candidates: dict[tuple[object, ...], Candidate] = {}
    returned_count = 0
    for answer in answers:
        providers.update(answer.providers)
        returned_count += answer.returned_count
        for candidate in answer.candidates:
            candidates.setdefault(_identity(candidate), candidate)
    return AllocationCandidates(tuple(candidates.values()), providers, returned_count)


def by_root(answer: AllocationCandidates) -> dict[str, tuple[Candidate, ...]]:
    """Return the candidates by the root of their host, in placement's order."""
    candidates_by_root: dict[str, list[Candidate]] = {}
    for candidate in answer.candidates:
        candidates_by_root.setdefault(candidate.root, []).append(candidate)
    return {root: tuple(candidates) for root, candidates in candidates_by_root.items()}


def _identity(candidate: Candidate) -> tuple[object, ...]:
    allocations = tuple(
        sorted(
            (uuid, tuple(sorted(amounts.items())))
            for uuid, amounts in candidate.allocations.items()
        )
    )
    return allocations, tuple(sorted(candidate.mappings.items()))
