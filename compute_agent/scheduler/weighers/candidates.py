"""Order of the candidates within one host: pack devices, keep whole cards and free cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compute_agent.scheduler import device_affinity
from compute_agent.scheduler.candidates import Candidate, ProviderSummary
from compute_agent.scheduler.device_affinity import NO_POLICIES
from compute_agent.scheduler.device_classes import is_special


def in_order(
    candidates: Sequence[Candidate],
    providers: Mapping[str, ProviderSummary],
    policy_of: Mapping[str, str] = NO_POLICIES,
) -> tuple[Candidate, ...]:
    """Return the candidates with the best first; equals stay in placement's order.

    Best is who has the most devices near the guest, of those that shall be, then who breaks into
    the fewest untouched devices, then leaves the least of the devices it touches, then takes from
    the fewest providers, then from the cells with the most left.
    """
    if len(candidates) < 2:
        return tuple(candidates)

    def cost(candidate: Candidate) -> tuple[float, ...]:
        return (
            device_affinity.far(candidate, providers, policy_of),
            *_cost(candidate, providers),
        )

    return tuple(sorted(candidates, key=cost))


def _cost(
    candidate: Candidate, providers: Mapping[str, ProviderSummary]
) -> tuple[int, int, int, float]:
    untouched_count = left_over = 0
    emptiest = 1.0
    for uuid, resources in candidate.allocations.items():
        provider = providers[uuid]
        for name, amount in resources.items():
            remainder = provider.free(name) - amount
            if is_special(name):
                untouched_count += provider.used.get(name, 0) == 0
                left_over += remainder
            else:
                emptiest = min(emptiest, remainder / max(provider.capacity.get(name, 0), 1))
    return untouched_count, left_over, len(candidate.allocations), -emptiest
