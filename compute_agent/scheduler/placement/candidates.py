"""Placement's answers: candidates, and the state of every provider of their trees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import chain, repeat
from operator import attrgetter, itemgetter, sub
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from compute_agent.placement.allocations.amounts import Amounts, as_request
from compute_agent.placement.candidate_answers import (
    AllocationRequest,
    CandidateList,
    ClassCount,
    Summary,
    traits_of,
)
from compute_agent.programs.decoding import decode
from compute_agent.provider_tree.trait_names import (
    HW_NUMA_ROOT,
    MISC_SHARES_VIA_AGGREGATE,
    NVLINK_PREFIX,
    XGMI_PREFIX,
)
from compute_agent.request.candidate_request import GUEST_CELL_SUFFIX
from compute_agent.scheduler.errors import AnswerMalformed

ANYWHERE = ("preferred", "socket")
"""Policies of devices that need not be on a cell of the guest."""
Counts: TypeAlias = Mapping[str, ClassCount]
"""Capacity and use by resource class."""
_LINKS: Final = (NVLINK_PREFIX, XGMI_PREFIX)
_NONE: Final = ClassCount(0, 0)


class ProviderSummary(NamedTuple):
    """One provider as placement sums it up: what it has, what is used, where it hangs."""

    uuid: str
    root: str
    parent: str | None = None
    counts: Counts = MappingProxyType({})
    traits: frozenset[str] = frozenset()

    @property
    def sharing(self) -> bool:
        """Whether other trees may use this provider."""
        return MISC_SHARES_VIA_AGGREGATE in self.traits

    def capacity(self, resource_class: str) -> int:
        """Return how much of `resource_class` it has, 0 where it has no inventory."""
        return self.counts.get(resource_class, _NONE).capacity

    def used(self, resource_class: str) -> int:
        """Return how much of `resource_class` is used."""
        return self.counts.get(resource_class, _NONE).used

    def free(self, resource_class: str) -> int:
        """Return what is left of `resource_class`, 0 where there is none or it is overcommitted."""
        count = self.counts.get(resource_class, _NONE)
        return max(count.capacity - count.used, 0)

    def using(self, amounts: Mapping[str, int]) -> ProviderSummary:
        """Return the provider with further amounts used."""
        used_counts = {
            name: ClassCount(count.capacity, count.used + amounts.get(name, 0))
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

    @property
    def guest_cells(self) -> list[str]:
        """The cells of the guest's NUMA nodes, one for each node."""
        return [
            uuid
            for suffix, uuids in self.mappings.items()
            if GUEST_CELL_SUFFIX.fullmatch(suffix)
            for uuid in uuids
        ]

    def as_request(self) -> dict[str, Any]:
        """Return the allocation request as the API writes it."""
        return {
            "allocations": as_request(self.allocations),
            "mappings": {suffix: list(uuids) for suffix, uuids in self.mappings.items()},
        }


class AllocationCandidates:
    """Candidates in placement's order, and the summaries by provider."""

    def __init__(
        self,
        candidates: Sequence[Candidate] = (),
        providers: Mapping[str, ProviderSummary] = MappingProxyType({}),
        returned_count: int = 0,
    ) -> None:
        self._given = tuple(candidates), providers
        self.returned_count = returned_count

    def __bool__(self) -> bool:
        """Whether there is any candidate."""
        return bool(self.candidates)

    def __len__(self) -> int:
        """Count the candidates."""
        return len(self.candidates)

    def has_shape(self, shape: str) -> bool:
        """Return whether any candidate is of a shape."""
        return any(candidate.shape == shape for candidate in self.candidates)

    @cached_property
    def candidates(self) -> tuple[Candidate, ...]:
        """The candidates of all hosts."""
        return self._given[0]

    @cached_property
    def providers(self) -> Mapping[str, ProviderSummary]:
        """Every provider of the trees, and the shared ones, by uuid."""
        return self._given[1]

    @cached_property
    def _by_root(self) -> Mapping[str, Sequence[Candidate]]:
        by_root: dict[str, list[Candidate]] = {}
        for candidate in self.candidates:
            by_root.setdefault(candidate.root, []).append(candidate)
        return by_root

    @property
    def roots(self) -> Sequence[str]:
        """The roots of the hosts that have candidates, in placement's order."""
        return list(self._by_root)

    def of_host(self, root: str) -> tuple[dict[str, ProviderSummary], Sequence[Candidate]]:
        """Return the providers of a host, with those that its candidates use, and these."""
        candidates = self._by_root[root]
        used_uuids = {uuid for candidate in candidates for uuid in candidate.allocations}
        uuids = dict.fromkeys((*self.trees[root], *used_uuids))
        return {uuid: self.providers[uuid] for uuid in uuids}, candidates

    @cached_property
    def trees(self) -> Mapping[str, Sequence[str]]:
        """The providers of each tree, by root."""
        trees: dict[str, list[str]] = {}
        for uuid, provider in self.providers.items():
            trees.setdefault(provider.root, []).append(uuid)
        return trees

    @property
    def nested_roots(self) -> frozenset[str]:
        """The roots of the trees that have NUMA cells."""
        return frozenset(
            provider.root for provider in self.providers.values() if HW_NUMA_ROOT in provider.traits
        )


class UnreadCandidates(AllocationCandidates):
    """An answer about hosts of one provider each, of which only that is read which is looked at.

    Of a thousand hosts one is claimed, and nothing but amounts is looked at of the others.

    :param summaries: of the hosts, in the order of placement's candidates.
    :param requests: the one candidate of each.
    :ivar traits: of each.
    """

    def __init__(
        self,
        summaries: Mapping[str, Summary],
        requests: Sequence[AllocationRequest],
        traits: Sequence[frozenset[str]],
        shape: str,
    ) -> None:
        self.returned_count = len(requests)
        self.traits = traits
        self._summaries = summaries
        self._requests = requests
        self._shape = shape

    def __bool__(self) -> bool:
        """Whether there is any candidate."""
        return bool(self._requests)

    def __len__(self) -> int:
        """Count the candidates."""
        return len(self._requests)

    def has_shape(self, shape: str) -> bool:
        """See `AllocationCandidates`."""
        return self._shape == shape and bool(self)

    @cached_property
    def candidates(self) -> tuple[Candidate, ...]:
        """See `AllocationCandidates`."""
        return tuple(map(_candidate, self._summaries, self._requests, repeat(self._shape)))

    @cached_property
    def providers(self) -> Mapping[str, ProviderSummary]:
        """See `AllocationCandidates`."""
        return {uuid: _summary(uuid, summary) for uuid, summary in self._summaries.items()}

    @property
    def nested_roots(self) -> frozenset[str]:
        """See `AllocationCandidates`: placement was asked for none that is a cell itself."""
        return frozenset()

    @cached_property
    def roots(self) -> Sequence[str]:
        """See `AllocationCandidates`."""
        return list(self._summaries)

    def of_host(self, root: str) -> tuple[dict[str, ProviderSummary], Sequence[Candidate]]:
        """See `AllocationCandidates`."""
        candidate = _candidate(root, self._request_by_root[root], self._shape)
        return {root: _summary(root, self._summaries[root])}, [candidate]

    @cached_property
    def _request_by_root(self) -> Mapping[str, AllocationRequest]:
        return dict(zip(self._summaries, self._requests, strict=True))

    @cached_property
    def free(self) -> Mapping[str, Sequence[int]]:
        """What is free of each resource class, of each host in the order of the roots."""
        counts = [summary.resources for summary in self._summaries.values()]
        return {name: _free(name, counts) for name in set[str]().union(*counts)}


_capacity: Final = attrgetter("capacity")
_used: Final = attrgetter("used")


def _free(name: str, counts: Sequence[Counts]) -> list[int]:
    try:
        of_class = list(map(itemgetter(name), counts))
    except KeyError:
        of_class = [of_host.get(name, _NONE) for of_host in counts]
    free = list(map(sub, map(_capacity, of_class), map(_used, of_class)))
    return free if min(free) >= 0 else [max(amount, 0) for amount in free]


def ancestry(provider: str, providers: Mapping[str, ProviderSummary]) -> tuple[str, ...]:
    """Return a provider and those above it, up to the root, as far as `providers` has them."""
    line: list[str] = []
    at: str | None = provider
    while at is not None and at in providers and at not in line:
        line.append(at)
        at = providers[at].parent
    return tuple(line)


def read(answer: CandidateList, shape: str = "flat") -> AllocationCandidates:
    """Read an answer of `GET /allocation_candidates`.

    A candidate belongs to the host whose root is that of its providers that are not shared; it does
    not matter whether the root itself gives anything. One that takes from shared providers only is
    on no host and left out (`Answer.returned_count` still counts it).

    :raises AnswerMalformed: providers that are not summarised, or of two hosts in one candidate.
    """
    summaries, requests = answer.provider_summaries, answer.allocation_requests
    allocations = [request.allocations for request in requests]
    roots = list(chain.from_iterable(allocations))
    takes_from_one = set(map(len, allocations)) == {1}
    if takes_from_one and len(roots) == len(summaries) and summaries.keys() == set(roots):
        lone = {root: summaries[root] for root in roots}
        if list(map(_root, lone.values())) == roots:
            contents = [bytes(summary.traits) for summary in lone.values()]
            hosts_by_content = dict(zip(contents, lone, strict=True))
            kinds = {text: _traits(root, lone[root]) for text, root in hosts_by_content.items()}
            if not any(MISC_SHARES_VIA_AGGREGATE in kind for kind in kinds.values()):
                traits = list(map(kinds.__getitem__, contents))
                return UnreadCandidates(lone, requests, traits, shape)
    providers = {uuid: _summary(uuid, summary) for uuid, summary in summaries.items()}
    by_root = _by_root(requests, providers)
    return AllocationCandidates(
        [
            _candidate(root, request, shape)
            for root, offers in by_root.items()
            for request in offers
        ],
        providers,
        len(requests),
    )


_root: Final = attrgetter("root_provider_uuid")


def _traits(uuid: str, summary: Summary) -> frozenset[str]:
    try:
        return traits_of(summary)
    except ValueError as error:
        raise _malformed(f"traits of provider {uuid}: {error}") from error


def _malformed(fault: str) -> AnswerMalformed:
    return AnswerMalformed(
        f"Placement's answer about candidates cannot be read ({fault})."
        " It needs microversion 1.36; check what answers at the configured endpoint."
    )


def _by_root(
    requests: Sequence[AllocationRequest], providers: Mapping[str, ProviderSummary]
) -> dict[str, list[AllocationRequest]]:
    by_root: dict[str, list[AllocationRequest]] = {}
    for request in requests:
        root = None
        for uuid in request.allocations:
            provider = providers.get(uuid)
            if provider is None:
                raise AnswerMalformed(f"Placement offers provider {uuid} without a summary of it.")
            if provider.root != root and not provider.sharing:
                if root is not None:
                    raise AnswerMalformed(
                        "Placement offers one candidate on two hosts: "
                        f"{', '.join(sorted((root, provider.root)))}."
                    )
                root = provider.root
        if root is not None:
            by_root.setdefault(root, []).append(request)
    return by_root


def _summary(uuid: str, summary: Summary) -> ProviderSummary:
    root, parent = summary.root_provider_uuid, summary.parent_provider_uuid
    return ProviderSummary(uuid, root, parent, summary.resources, _traits(uuid, summary))


def _candidate(root: str, request: AllocationRequest, shape: str) -> Candidate:
    allocations = {uuid: held.resources for uuid, held in request.allocations.items()}
    try:
        mappings = decode(bytes(request.mappings), dict[str, tuple[str, ...]])
    except ValueError as error:
        raise _malformed(f"mappings of a candidate on host {root}: {error}") from error
    return Candidate(root, allocations, mappings, shape)


@lru_cache(maxsize=4096)
def links_of(traits: frozenset[str]) -> tuple[str, ...]:
    """Return the traits that name groups of linked devices, in order."""
    return tuple(sorted(trait for trait in traits if trait.startswith(_LINKS)))


def is_near(
    candidate: Candidate, providers: Mapping[str, ProviderSummary], policy_of: Mapping[str, str]
) -> bool:
    """Whether each device is as near to the guest's cells as its policy wants.

    On a flat host only its agent knows which device is near: all are.
    """
    cells = frozenset(candidate.guest_cells)
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
