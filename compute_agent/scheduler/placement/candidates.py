"""Placement's answers: candidates, and the state of every provider of their trees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from compute_agent.placement.allocations.amounts import Amounts, as_request
from compute_agent.provider_tree.trait_names import HW_NUMA_ROOT, MISC_SHARES_VIA_AGGREGATE
from compute_agent.request.candidate_request import GUEST_CELL_SUFFIX
from compute_agent.scheduler.errors import AnswerMalformed
from compute_agent.virt.layout.devices.gpus import NVLINK_PREFIX, XGMI_PREFIX

ANYWHERE = ("preferred", "socket")
"""Policies of devices that need not be on a cell of the guest."""
_LINKS: Final = (NVLINK_PREFIX, XGMI_PREFIX)


class ProviderSummary(NamedTuple):
    """One provider as placement sums it up: what it has, what is used, where it hangs.

    :ivar counts: `capacity` and `used` by resource class, as placement writes them.
    """

    uuid: str
    root: str
    parent: str | None = None
    counts: Mapping[str, Mapping[str, int]] = MappingProxyType({})
    traits: frozenset[str] = frozenset()

    @property
    def sharing(self) -> bool:
        """Whether other trees may use this provider."""
        return MISC_SHARES_VIA_AGGREGATE in self.traits

    def capacity(self, resource_class: str) -> int:
        """Return how much of `resource_class` it has, 0 where it has no inventory."""
        count = self.counts.get(resource_class)
        return count["capacity"] if count else 0

    def used(self, resource_class: str) -> int:
        """Return how much of `resource_class` is used."""
        count = self.counts.get(resource_class)
        return count["used"] if count else 0

    def free(self, resource_class: str) -> int:
        """Return what is left of `resource_class`, 0 where there is none or it is overcommitted."""
        count = self.counts.get(resource_class)
        return max(count["capacity"] - count["used"], 0) if count else 0

    def using(self, amounts: Mapping[str, int]) -> ProviderSummary:
        """Return the provider with further amounts used."""
        used_counts = {
            name: {"capacity": count["capacity"], "used": count["used"] + amounts.get(name, 0)}
            for name, count in self.counts.items()
        }
        return self._replace(counts=used_counts)


class Candidate(NamedTuple):
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
    _trees: dict[str, dict[str, ProviderSummary]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    @property
    def trees(self) -> Mapping[str, Mapping[str, ProviderSummary]]:
        """The providers of each tree by uuid, by root."""
        if not self._trees:
            for uuid, provider in self.providers.items():
                self._trees.setdefault(provider.root, {})[uuid] = provider
        return self._trees

    @property
    def nested_roots(self) -> frozenset[str]:
        """The roots of the trees that have NUMA cells."""
        return frozenset(
            provider.root for provider in self.providers.values() if HW_NUMA_ROOT in provider.traits
        )


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
        providers = _summaries(body["provider_summaries"])
        allocation_requests = body["allocation_requests"]
        candidates = tuple(_candidates(allocation_requests, providers, shape))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise AnswerMalformed(
            f"Placement's answer about candidates cannot be read ({type(error).__name__}: {error})."
            " It needs microversion 1.36; check what answers at the configured endpoint."
        ) from error
    return AllocationCandidates(
        candidates,
        providers,
        returned_count=len(allocation_requests),
    )


def _summaries(bodies: Mapping[str, Any]) -> dict[str, ProviderSummary]:
    return {
        uuid: ProviderSummary(
            uuid,
            body["root_provider_uuid"],
            body["parent_provider_uuid"],
            body["resources"],
            _traits(tuple(body["traits"])),
        )
        for uuid, body in bodies.items()
    }


@lru_cache(maxsize=4096)
def _traits(names: tuple[str, ...]) -> frozenset[str]:
    """Return the one set of these traits, which all hosts of a kind share, in all answers."""
    return frozenset(names)


@lru_cache(maxsize=4096)
def links_of(traits: frozenset[str]) -> tuple[str, ...]:
    """Return the traits that name groups of linked devices, in order."""
    return tuple(sorted(trait for trait in traits if trait.startswith(_LINKS)))


def _candidates(
    bodies: Sequence[Mapping[str, Any]], providers: Mapping[str, ProviderSummary], shape: str
) -> Iterator[Candidate]:
    for body in bodies:
        allocations, root = {}, None
        for uuid, allocation in body["allocations"].items():
            allocations[uuid] = allocation["resources"]
            provider = providers.get(uuid)
            if provider is None:
                raise AnswerMalformed(f"Placement offers provider {uuid} without a summary of it.")
            if provider.root != root and MISC_SHARES_VIA_AGGREGATE not in provider.traits:
                if root is not None:
                    raise AnswerMalformed(
                        "Placement offers one candidate on two hosts: "
                        f"{', '.join(sorted((root, provider.root)))}."
                    )
                root = provider.root
        if root is not None:
            mappings = {suffix: tuple(uuids) for suffix, uuids in body["mappings"].items()}
            yield Candidate(root, allocations, mappings, shape)


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
