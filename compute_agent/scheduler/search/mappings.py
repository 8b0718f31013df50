"""Mappings of a claim, found again from what is held.  Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from compute_agent.placement.amounts import (
    Amounts,
    MutableAmounts,
    copy_of,
    covers,
    subtract,
    without_zeros,
)
from compute_agent.request.candidate_request import UNSUFFIXED, CandidateRequest


def mappings_of(
    request: CandidateRequest, held: Amounts, traits: Mapping[str, frozenset[str]]
) -> dict[str, tuple[str, ...]] | None:
    """Return which providers serve which group, for a claim whose mappings are not at hand.

    Of several ways the first is returned, always the same one. Groups without resources are left
    out.

    :param traits: those of each provider.
    :returns: `None` when what is held is not what was asked.
    """
    suffixes = sorted(
        suffix
        for suffix, group in request.groups.items()
        if suffix != UNSUFFIXED and group.resources
    )
    for mappings, rest in _assigned(request, suffixes, copy_of(held), traits):
        totals: dict[str, int] = {}
        for resources in rest.values():
            for name, amount in resources.items():
                totals[name] = totals.get(name, 0) + amount
        if totals == dict(request.group(UNSUFFIXED).resources):
            return {**mappings, **({UNSUFFIXED: tuple(sorted(rest))} if rest else {})}
    return None


def _assigned(
    request: CandidateRequest,
    suffixes: Sequence[str],
    left: MutableAmounts,
    traits: Mapping[str, frozenset[str]],
) -> Iterator[tuple[dict[str, tuple[str, ...]], MutableAmounts]]:
    if not suffixes:
        yield {}, left
        return
    suffix, *others = suffixes
    group = request.group(suffix)
    for provider in sorted(left):
        has, part = traits.get(provider, frozenset()), {provider: group.resources}
        if not covers(left, part) or has & group.forbidden:
            continue
        if any(has.isdisjoint(any_of) for any_of in group.required):
            continue
        rest = without_zeros(subtract(left, part))
        for mappings, remaining in _assigned(request, others, rest, traits):
            yield {suffix: (provider,), **mappings}, remaining
