"""Room that hosts have for an amount: what could fit, and the largest amount that does.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import TypeVar

from compute_agent.scheduler.host_state import HostState

Trial = TypeVar("Trial")


def plausible_amounts(
    resource_class: str, asked_amount: int, hosts: Iterable[HostState]
) -> list[int]:
    """Return the amounts below `asked_amount` that one of `hosts` may have room for, ascending.

    What single providers have free, what several cells have together, and, for limits that are
    not shown, the powers of two.
    """
    amounts = {2**exponent for exponent in range(asked_amount.bit_length())}
    for host in hosts:
        frees = sorted(
            (provider.free(resource_class) for provider in host.providers.values()), reverse=True
        )
        amounts |= {*frees, *accumulate(frees)}
    return sorted(amount for amount in amounts if 0 < amount < asked_amount)


def most_on(host: HostState, resource_class: str) -> int:
    """Return the largest amount that one provider of a host has free."""
    return max(
        (provider.free(resource_class) for provider in host.providers.values()),
        default=0,
    )


def most_for(host: HostState, resource_class: str, group: str) -> int:
    """Return the largest free amount on a provider that serves a group in one of the candidates.

    :returns: 0 where no candidate of the host takes this class for this group.
    """
    providers = {
        uuid
        for candidate in host.candidates
        for uuid in candidate.mappings.get(group, ())
        if candidate.amount(uuid, resource_class)
    }
    return max(
        (host.providers[uuid].free(resource_class) for uuid in providers & host.providers.keys()),
        default=0,
    )


def largest_that_fits(
    amounts: Sequence[int], fits: Callable[[int], Trial | None]
) -> tuple[int, Trial] | None:
    """Return the largest of ascending `amounts` that fits, and how it does; `None` if none does.

    An amount fits when every larger one of those that fit does not: the search halves.

    :param fits: returns what was found for an amount, or `None`.
    """
    best_trial: tuple[int, Trial] | None = None
    low, high = 0, len(amounts)
    while low < high:
        middle = (low + high) // 2
        trial = fits(amounts[middle])
        if trial is None:
            high = middle
        else:
            best_trial, low = (amounts[middle], trial), middle + 1
    return best_trial
