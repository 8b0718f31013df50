"""Devices of candidates near the NUMA nodes of a guest, as `guest_numa` wants it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations_with_replacement, product
from math import comb, prod
from types import MappingProxyType
from typing import Final

from compute_agent.provider_tree.trait_names import HW_NUMA_ROOT
from compute_agent.request.candidate_request import (
    GUEST_CELL_SUFFIX,
    CandidateRequest,
)
from compute_agent.request.guest_numa import GuestNode
from compute_agent.scheduler.candidates import Candidate, ProviderSummary, ancestry

REQUIRED: Final = "required"
MOST_WAYS: Final = 8
"""Ways to bind devices to nodes that are each asked for; where there are more, none is bound."""

_TRIED_WAYS = 1000
_ANYWHERE = ("preferred", "socket")

NO_POLICIES: Mapping[str, str] = MappingProxyType({})
Binding = Mapping[str, int]
"""Suffix of a device's group to the number of the guest's node that it must be near."""


def bindings(
    request: CandidateRequest,
    policy_of: Mapping[str, str],
    nodes: Sequence[GuestNode],
    unlike: Collection[str] = (),
) -> tuple[Binding, ...]:
    """Return the ways to bind the devices that must be near the guest to nodes of it.

    Of ways that differ in equal devices or equal nodes only, one is returned. The one way that
    binds nothing is returned where no device must be, and where there are more than `MOST_WAYS`.

    :param unlike: groups of nodes of which more is asked than of their equals.
    """
    related_suffixes = [*request.same_subtree, *(together for together, _others in request.apart)]
    placed_suffixes = set().union(
        *(names for names in related_suffixes if any(map(GUEST_CELL_SUFFIX.fullmatch, names)))
    )
    named_suffixes = placed_suffixes.union(unlike, *(others for _together, others in request.apart))
    alike: dict[object, list[str]] = {}
    for suffix, policy in sorted(policy_of.items()):
        if policy == REQUIRED and suffix not in placed_suffixes:
            alike.setdefault(_wishes(request, suffix), []).append(suffix)
    number = prod(comb(len(group) + len(nodes) - 1, len(group)) for group in alike.values())
    if number > _TRIED_WAYS:
        return ({},)
    of_each = [
        [dict(zip(suffixes, choice, strict=True)) for choice in _choices(len(suffixes), nodes)]
        for suffixes in alike.values()
    ]
    ways: dict[object, Binding] = {}
    for parts in product(*of_each):
        way = {suffix: node for part in parts for suffix, node in part.items()}
        ways.setdefault(_without_names(parts, nodes, named_suffixes), way)
        if len(ways) > MOST_WAYS:
            return ({},)
    return tuple(ways.values())


def near(
    candidate: Candidate, providers: Mapping[str, ProviderSummary], policy_of: Mapping[str, str]
) -> bool:
    """Whether each device is as near to the guest's cells as its policy wants.

    On a flat host only its agent knows which device is near: all are.
    """
    cells = _cells(candidate)
    if not cells:
        return True
    for suffix, policy in policy_of.items():
        if policy in _ANYWHERE:
            continue
        for device in candidate.mappings.get(suffix, ()):
            line = ancestry(device, providers)
            of_a_cell = any(HW_NUMA_ROOT in providers[provider].traits for provider in line)
            if (of_a_cell or policy == REQUIRED) and cells.isdisjoint(line):
                return False
    return True


def far(
    candidate: Candidate, providers: Mapping[str, ProviderSummary], policy_of: Mapping[str, str]
) -> int:
    """Return how many devices are not below a cell of the guest, of those that have a policy."""
    cells = _cells(candidate)
    return sum(
        cells.isdisjoint(ancestry(device, providers))
        for suffix in policy_of
        for device in candidate.mappings.get(suffix, ())
        if cells
    )


def _cells(candidate: Candidate) -> frozenset[str]:
    return frozenset(
        uuid
        for suffix, uuids in candidate.mappings.items()
        if GUEST_CELL_SUFFIX.fullmatch(suffix)
        for uuid in uuids
    )


def _choices(devices: int, nodes: Sequence[GuestNode]) -> list[tuple[int, ...]]:
    return list(combinations_with_replacement(range(len(nodes)), devices))


def _wishes(request: CandidateRequest, suffix: str) -> object:
    """Return what is asked of a device, which is the same for equal ones."""
    group = request.group(suffix)
    return (
        frozenset(group.resources.items()),
        (group.required, group.forbidden, group.in_tree),
        (group.member_of, group.forbidden_aggregates),
        frozenset(names - {suffix} for names in request.same_subtree if suffix in names),
        frozenset(
            (suffix in together, together - {suffix}, others - {suffix})
            for together, others in request.apart
            if suffix in together | others
        ),
    )


def _without_names(
    parts: Sequence[Binding], nodes: Sequence[GuestNode], names: Collection[str]
) -> object:
    """Return what is left of a way when equal devices, and equal nodes, have no names."""
    loads = [
        (
            *(node.vcpu, node.pcpu, node.memory_mb),
            index if f"_NUMA{index}" in names else -1,
            *(sum(node_index == index for node_index in part.values()) for part in parts),
        )
        for index, node in enumerate(nodes)
    ]
    return tuple(sorted(loads))
