"""Mappings of a claim, found again from what is held.  Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compute_agent.placement.allocations.amounts import (
    Amounts,
    MutableAmounts,
    by_class,
    copy_of,
    covers,
    subtract,
    without_zeros,
)
from compute_agent.request.candidate_request import UNSUFFIXED, CandidateRequest


def mappings_of(
    request: CandidateRequest, held_amounts: Amounts, traits: Mapping[str, frozenset[str]]
) -> dict[str, tuple[str, ...]] | None:
    """Return which providers serve which group, for a claim whose mappings are not at hand.

    Of several ways the first is returned, always the same one. Groups without resources are left
    out.

    :param traits: those of each provider.
    :returns: `None` when what is held is not what was asked.
    """
    suffixes = [
        suffix
        for suffix, group in sorted(request.groups.items())
        if suffix != UNSUFFIXED and group.resources
    ]
    requested_amounts = by_class(
        request.group(suffix).resources for suffix in [*suffixes, UNSUFFIXED]
    )
    if by_class(held_amounts.values()) != requested_amounts:
        return None
    admitted_providers = {
        suffix: tuple(
            provider
            for provider in sorted(held_amounts)
            if request.group(suffix).accepts(traits.get(provider, frozenset()))
        )
        for suffix in suffixes
    }
    # those with the least choice first, so that little is tried in vain
    suffixes.sort(key=lambda suffix: len(admitted_providers[suffix]))
    assignment = _assign(request, suffixes, copy_of(held_amounts), admitted_providers, set())
    if assignment is None:
        return None
    mappings, rest = assignment
    forbidden_traits = request.group(UNSUFFIXED).forbidden
    if any(not forbidden_traits.isdisjoint(traits.get(provider, ())) for provider in rest):
        return None
    return {**mappings, **({UNSUFFIXED: tuple(sorted(rest))} if rest else {})}


def _assign(
    request: CandidateRequest,
    suffixes: Sequence[str],
    remaining_amounts: MutableAmounts,
    admitted_providers: Mapping[str, Sequence[str]],
    dead_ends: set[tuple[int, str]],
) -> tuple[dict[str, tuple[str, ...]], MutableAmounts] | None:
    """Return providers for these groups, and what is left then; `None` when there are none.

    :param dead_ends: how many groups could not be served from what; added to.
    """
    if not suffixes:
        return {}, remaining_amounts
    state = (
        len(suffixes),
        repr(sorted((uuid, sorted(n.items())) for uuid, n in remaining_amounts.items())),
    )
    if state in dead_ends:
        return None
    suffix, *others = suffixes
    resources = request.group(suffix).resources
    for provider in admitted_providers[suffix]:
        part = {provider: resources}
        if not covers(remaining_amounts, part):
            continue
        rest = without_zeros(subtract(remaining_amounts, part))
        assignment = _assign(request, others, rest, admitted_providers, dead_ends)
        if assignment is not None:
            mappings, amounts_left = assignment
            return {suffix: (provider,), **mappings}, amounts_left
    dead_ends.add(state)
    return None
