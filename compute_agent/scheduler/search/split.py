"""Guests larger than a NUMA cell: their CPUs and memory over several cells of one host.

Placement never splits an amount. So the scheduler asks for one of each, reads from the summaries
what every cell has left, and composes the allocation itself; the claim then checks the capacity.
A guest that something must be beside, or away from, is never split: see `shapes.split_shape`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from compute_agent.placement.allocations.amounts import MutableAmounts, add, subtract
from compute_agent.provider_tree.trait_names import HW_NUMA_ROOT
from compute_agent.request.candidate_request import UNSUFFIXED, CandidateRequest, RequestGroup
from compute_agent.request.guest_numa import GuestNode
from compute_agent.scheduler.candidates import AllocationCandidates, Candidate, ProviderSummary
from compute_agent.scheduler.search.layout_queries import CELL_GROUP, TRAIT_GROUP

_EXHAUSTIVE_UP_TO = 12
"""Cells of a host up to which every combination is looked at; beyond, the emptiest are taken."""


def compose(
    answer: AllocationCandidates, whole: GuestNode, probe: CandidateRequest
) -> tuple[Candidate, ...]:
    """Return one candidate per host whose cells can hold the guest together.

    :param answer: answer to `probe`.
    :param whole: what the guest needs.
    :param probe: the question of shape ``split``, with one of each in the place of `whole`.
    """
    composed_candidates: dict[str, Candidate] = {}
    for candidate in answer.candidates:
        if candidate.root in composed_candidates:
            continue
        others = _without(candidate, probe.group(CELL_GROUP).resources)
        cells = [
            _less(cell, others.get(cell.uuid, {}))
            for cell in answer.tree(candidate.root)
            if _eligible(cell, answer, candidate, probe)
        ]
        shares = share(cells, whole)
        if shares:
            composed_candidates[candidate.root] = Candidate(
                candidate.root,
                add(others, shares),
                {**candidate.mappings, CELL_GROUP: tuple(shares)},
                "split",
            )
    return tuple(composed_candidates.values())


def share(cells: Sequence[ProviderSummary], whole: GuestNode) -> MutableAmounts:
    """Return the parts of `whole` by cell: the fewest cells, of these the fullest; {} if none do.

    Every cell taken gives at least one CPU and one MiB, so that the guest has a node there.
    """
    needs = {"VCPU": whole.vcpu, "PCPU": whole.pcpu, "MEMORY_MB": whole.memory_mb}
    needs = {name: amount for name, amount in needs.items() if amount}
    usable = sorted(
        (cell for cell in cells if all(cell.free(name) for name in needs)),
        key=lambda cell: (sum(cell.free(name) for name in needs), cell.uuid),
    )
    for count in range(1, len(usable) + 1):
        if any(amount < count for amount in needs.values()):
            return {}
        for choice in _choices(usable, count):
            if all(sum(cell.free(name) for cell in choice) >= n for name, n in needs.items()):
                return _parts(choice, needs)
    return {}


def _choices(
    usable: Sequence[ProviderSummary], count: int
) -> Iterable[tuple[ProviderSummary, ...]]:
    """Yield ways to take `count` cells, the fullest first."""
    if len(usable) > _EXHAUSTIVE_UP_TO:
        return (tuple(usable[-count:]),)
    return combinations(usable, count)


def _parts(providers: Sequence[ProviderSummary], needs: dict[str, int]) -> MutableAmounts:
    parts: MutableAmounts = {cell.uuid: {} for cell in providers}
    for name, amount in needs.items():
        remaining_amount = amount
        for index, cell in enumerate(providers):
            later = len(providers) - index - 1
            part = min(cell.free(name), remaining_amount - later)
            parts[cell.uuid][name] = part
            remaining_amount -= part
    return parts


def _eligible(
    cell: ProviderSummary,
    answer: AllocationCandidates,
    candidate: Candidate,
    probe: CandidateRequest,
) -> bool:
    """Whether a cell may give a part of the guest, whatever it has left."""
    if HW_NUMA_ROOT not in cell.traits or not _has_traits(cell, probe.group(CELL_GROUP)):
        return False
    if probe.group_policy == "isolate" and cell.uuid in _isolated_providers(candidate):
        return False
    beside = probe.group(TRAIT_GROUP)
    return beside.empty or any(
        _has_traits(provider, beside)
        for provider in answer.tree(candidate.root)
        if provider.uuid in answer.ancestry(cell.uuid)
        or cell.uuid in answer.ancestry(provider.uuid)
    )


def _has_traits(provider: ProviderSummary, group: RequestGroup) -> bool:
    any_of_each = all(names & provider.traits for names in group.required)
    return any_of_each and not group.forbidden & provider.traits


def _isolated_providers(candidate: Candidate) -> set[str]:
    """Return the providers that groups other than the guest's have for themselves."""
    suffixes = candidate.mappings.keys() - {UNSUFFIXED, CELL_GROUP}
    return {uuid for suffix in suffixes for uuid in candidate.mappings[suffix]}


def _without(candidate: Candidate, probed_amounts: Mapping[str, int]) -> MutableAmounts:
    """Return what the candidate takes besides what the probe took from the guest's cell."""
    return subtract(
        candidate.allocations, dict.fromkeys(candidate.mappings.get(CELL_GROUP, ()), probed_amounts)
    )


def _less(cell: ProviderSummary, amounts: Mapping[str, int]) -> ProviderSummary:
    """Return the cell as it is once other groups of the same request have taken their amounts."""
    used = {name: cell.used.get(name, 0) + amount for name, amount in amounts.items()}
    return replace(cell, used={**cell.used, **used})
