"""Guests larger than a NUMA cell: their CPUs and memory over several cells of one host.

Placement never splits an amount. So the scheduler asks for one of each, reads from the summaries
what every cell has left, and composes the allocation itself; the claim then checks the capacity.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

from compute_agent.scheduler.answer import NUMA_ROOT, Answer, Candidate, ProviderSummary
from compute_agent.scheduler.guest_numa import GuestNode
from compute_agent.scheduler.request import RequestGroup

CELL_GROUP = "_NUMA0"
_EXHAUSTIVE_UP_TO = 12
"""Cells of a host up to which every combination is looked at; beyond, the emptiest are taken."""


def compose(answer: Answer, whole: GuestNode, group: RequestGroup) -> tuple[Candidate, ...]:
    """Return one candidate per host whose cells can hold the guest together.

    :param answer: answer to the question of shape ``split``.
    :param whole: what the guest needs.
    :param group: the group asked of each cell, for its traits.
    """
    found: dict[str, Candidate] = {}
    for candidate in answer.candidates:
        if candidate.root in found:
            continue
        probed = set(candidate.mappings.get(CELL_GROUP, ()))
        cells = [one for one in answer.tree(candidate.root) if _eligible(one, group)]
        shares = share(cells, whole)
        if not shares:
            continue
        others = {
            uuid: resources
            for uuid, resources in candidate.allocations.items()
            if uuid not in probed
        }
        found[candidate.root] = Candidate(
            candidate.root,
            {**others, **shares},
            {**candidate.mappings, CELL_GROUP: tuple(shares)},
            "split",
        )
    return tuple(found.values())


def share(cells: Sequence[ProviderSummary], whole: GuestNode) -> dict[str, dict[str, int]]:
    """Return the parts of `whole` by cell: the fewest cells, of these the fullest; {} if none do.

    Every cell taken gives at least one CPU and one MiB, so that the guest has a node there.
    """
    needs = {"VCPU": whole.vcpu, "PCPU": whole.pcpu, "MEMORY_MB": whole.memory_mb}
    needs = {name: amount for name, amount in needs.items() if amount}
    usable = sorted(
        (one for one in cells if all(one.free(name) for name in needs)),
        key=lambda one: (sum(one.free(name) for name in needs), one.uuid),
    )
    for count in range(1, len(usable) + 1):
        if any(amount < count for amount in needs.values()):
            return {}
        for chosen in _choices(usable, count):
            if all(sum(one.free(name) for one in chosen) >= n for name, n in needs.items()):
                return _parts(chosen, needs)
    return {}


def _choices(
    usable: Sequence[ProviderSummary], count: int
) -> Iterable[tuple[ProviderSummary, ...]]:
    """Yield ways to take `count` cells, the fullest first."""
    if len(usable) > _EXHAUSTIVE_UP_TO:
        return (tuple(usable[-count:]),)
    return combinations(usable, count)


def _parts(chosen: Sequence[ProviderSummary], needs: dict[str, int]) -> dict[str, dict[str, int]]:
    parts: dict[str, dict[str, int]] = {one.uuid: {} for one in chosen}
    for name, amount in needs.items():
        left = amount
        for index, one in enumerate(chosen):
            later = len(chosen) - index - 1
            part = min(one.free(name), left - later)
            parts[one.uuid][name] = part
            left -= part
    return parts


def _eligible(cell: ProviderSummary, group: RequestGroup) -> bool:
    return (
        NUMA_ROOT in cell.traits
        and all(one & cell.traits for one in group.required)
        and not group.forbidden & cell.traits
    )
