"""Placement's answers: candidates, and the state of every provider of their trees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from compute_agent.placement.allocations.amounts import Amounts, as_request
from compute_agent.provider_tree.trait_names import HW_NUMA_ROOT, MISC_SHARES_VIA_AGGREGATE
from compute_agent.request.candidate_request import GUEST_CELL_SUFFIX
from compute_agent.scheduler.errors import AnswerMalformed

ANYWHERE = ("preferred", "socket")
"""Policies of devices that need not be on a cell of the guest."""


@dataclass(frozen=True, slots=True)
class ProviderSummary:
    """One provider as placement sums it up: what it has, what is used, where it hangs."""

    uuid: str
    root: str
    parent: str | None = None
    capacity: Mapping[str, int] = field(default_factory=dict)
    used: Mapping[str, int] = field(default_factory=dict)
    traits: frozenset[str] = frozenset()

    @property
    def sharing(self) -> bool:
        """Whether other trees may use this provider."""
        return MISC_SHARES_VIA_AGGREGATE in self.traits

    def free(self, resource_class: str) -> int:
        """Return what is left of `resource_class`, 0 where there is none or it is overcommitted."""
        free_amount = self.capacity.get(resource_class, 0) - self.used.get(resource_class, 0)
        return max(free_amount, 0)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to serve a request.

    :param root: root provider of the host that it is on.
    :param mappings: suffix to the providers that serve that group.
    :param shape: name of the shape of the request that it answers.
    """

    root: str
    allocations: Amounts
    mappings: Mapping[str, tuple[str, ...]]
    shape: str = "flat"

    def amount(self, provider: str, resource_class: str) -> int:
        """Return how much of a class it takes from a provider."""
        return self.allocations.get(provider, {}).get(resource_class, 0)

    def as_request(self) -> dict[str, Any]:
        """Return the allocation request as the API writes it."""
        return {
            "allocations": as_request(self.allocations),
            "mappings": {suffix: list(uuids) for suffix, uuids in self.mappings.items()},
        }


@dataclass(frozen=True, slots=True)
class AllocationCandidates:
    """Candidates in placement's order, and the summaries by provider."""

    candidates: tuple[Candidate, ...] = ()
    providers: Mapping[str, ProviderSummary] = field(default_factory=dict)
    returned_count: int = 0
    _trees: dict[str, list[ProviderSummary]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def ancestry(self, provider: str) -> tuple[str, ...]:
        """Return a provider and those above it, up to the root, as far as they are known."""
        return ancestry(provider, self.providers)

    def tree(self, root: str) -> tuple[ProviderSummary, ...]:
        """Return the providers of one tree."""
        if not self._trees:
            for provider in self.providers.values():
                self._trees.setdefault(provider.root, []).append(provider)
        return tuple(self._trees.get(root, ()))


def ancestry(provider: str, providers: Mapping[str, ProviderSummary]) -> tuple[str, ...]:
    """Return a provider and those above it, up to the root, as far as `providers` has them."""
    line: list[str] = []
    at: str | None = provider
    while at is not None and at in providers and at not in line:
        line.append(at)
        at = providers[at].parent
    return tuple(line)


def read(body: Mapping[str, Any], shape: str = "flat") -> AllocationCandidates:
    """Read the JSON body of `GET /allocation_candidates`.

    A candidate belongs to the host whose root is that of its providers that are not shared; it does
    not matter whether the root itself gives anything. One that takes from shared providers only is
    on no host and left out (`Answer.returned_count` still counts it).

    :raises AnswerMalformed: providers that are not summarised, or of two hosts in one candidate.
    """
    try:
        providers = {
            uuid: _summary(uuid, summary) for uuid, summary in body["provider_summaries"].items()
        }
        allocation_requests = body["allocation_requests"]
        candidates = [_candidate(request, providers, shape) for request in allocation_requests]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise AnswerMalformed(
            f"Placement's answer about candidates cannot be read ({type(error).__name__}: {error})."
            " It needs microversion 1.36; check what answers at the configured endpoint."
        ) from error
    return AllocationCandidates(
        tuple(candidate for candidate in candidates if candidate is not None),
        providers,
        returned_count=len(allocation_requests),
    )


def _summary(uuid: str, body: Mapping[str, Any]) -> ProviderSummary:
    resources = body["resources"]
    return ProviderSummary(
        uuid=uuid,
        root=body["root_provider_uuid"],
        parent=body["parent_provider_uuid"],
        capacity={name: int(count["capacity"]) for name, count in resources.items()},
        used={name: int(count["used"]) for name, count in resources.items()},
        traits=frozenset(body["traits"]),
    )


def _candidate(
    body: Mapping[str, Any], providers: Mapping[str, ProviderSummary], shape: str
) -> Candidate | None:
    allocations = {
        uuid: {name: int(amount) for name, amount in allocation["resources"].items()}
        for uuid, allocation in body["allocations"].items()
    }
    unknown_uuids = [uuid for uuid in allocations if uuid not in providers]
    if unknown_uuids:
        raise AnswerMalformed(
            f"Placement offers provider {min(unknown_uuids)} without a summary of it."
        )
    roots = {providers[uuid].root for uuid in allocations if not providers[uuid].sharing}
    if len(roots) > 1:
        raise AnswerMalformed(
            f"Placement offers one candidate on two hosts: {', '.join(sorted(roots))}."
        )
    if not roots:
        return None
    mappings = {suffix: tuple(uuids) for suffix, uuids in body["mappings"].items()}
    return Candidate(roots.pop(), allocations, mappings, shape)


def is_near(
    candidate: Candidate, providers: Mapping[str, ProviderSummary], policy_of: Mapping[str, str]
) -> bool:
    """Whether each device is as near to the guest's cells as its policy wants.

    On a flat host only its agent knows which device is near: all are.
    """
    cells = _cells(candidate)
    if not cells:
        return True
    for suffix, policy in policy_of.items():
        if policy in ANYWHERE:
            continue
        for device in candidate.mappings.get(suffix, ()):
            line = ancestry(device, providers)
            of_a_cell = any(HW_NUMA_ROOT in providers[provider].traits for provider in line)
            if (of_a_cell or policy == "required") and cells.isdisjoint(line):
                return False
    return True


def _cells(candidate: Candidate) -> frozenset[str]:
    return frozenset(
        uuid
        for suffix, uuids in candidate.mappings.items()
        if GUEST_CELL_SUFFIX.fullmatch(suffix)
        for uuid in uuids
    )
