"""Ports and accelerators that come to an instance, or leave it, while it runs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from compute_agent.errors import AllocationMoveFailed, AllocationUpdateFailed
from compute_agent.request import flavor
from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.candidates import Allocations
from compute_agent.scheduler.causes import Causes, LostClaim
from compute_agent.scheduler.claiming.claim_order import lost_claim
from compute_agent.scheduler.errors import NoValidHost
from compute_agent.scheduler.placement import Placement, Wanted
from compute_agent.scheduler.search.current_host import root_of
from compute_agent.scheduler.search.search import Search

LOG = logging.getLogger(__name__)

CANDIDATES_TRIED = 8
INSTANCE = "INSTANCE"


@dataclass(frozen=True, slots=True)
class Attached:
    """What was added for a port or accelerator; the caller keeps it until it is detached.

    :param mappings: group to the providers that serve it.
    """

    allocations: Allocations
    mappings: Mapping[str, tuple[str, ...]]

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "allocations": {uuid: dict(amounts) for uuid, amounts in self.allocations.items()},
            "mappings": {suffix: list(uuids) for suffix, uuids in self.mappings.items()},
        }


class Attachments:
    """Adds to what instances hold on their host, and takes from it."""

    def __init__(self, placement: Placement, search: Search) -> None:
        self._placement = placement
        self._search = search

    def attach(self, spec: RequestSpec, instance: str) -> Attached:
        """Add what `spec` asks for to what an instance holds, on the host that it is on.

        :param spec: the groups of the port or accelerator alone, without a flavor's sizes.
        :raises NoValidHost: its host has not enough for that.
        :raises MoveRefused: the instance is on no host, or on several.
        :raises AllocationMoveFailed: somebody else changed what it holds.
        """
        holding = self._placement.holding(instance)
        root = root_of(self._placement, instance, holding)
        request = flavor.request_of(spec, flavor.RequestOptions(limit=None))
        lost: list[LostClaim] = []
        for candidate in self._search.on_host(spec, request, root).candidates[:CANDIDATES_TRIED]:
            total = _sum(holding.allocations, candidate.allocations)
            refusal = self._placement.exchange({instance: Wanted(holding, total, INSTANCE)})
            if refusal is None:
                LOG.info("Added %s to what %s holds", candidate.allocations, instance)
                return Attached(candidate.allocations, candidate.mappings)
            lost.append(lost_claim(root, candidate, refusal))
        causes = Causes(claims_lost=tuple(lost))
        if not lost:
            reason = f"Host {root} of instance {instance} has no candidate for what is attached."
            raise NoValidHost(reason, Causes(notes=(reason,)))
        raise NoValidHost(causes.sentence(), causes)

    def detach(self, instance: str, resources: Allocations) -> None:
        """Take from what an instance holds.

        :param resources: what was added for a port or accelerator: provider to class to amount.
        :raises AllocationUpdateFailed: the instance holds less than that.
        :raises AllocationMoveFailed: somebody else changed what it holds.
        """
        holding = self._placement.holding(instance)
        left = {uuid: dict(amounts) for uuid, amounts in holding.allocations.items()}
        for uuid, amounts in resources.items():
            for name, amount in amounts.items():
                has = left.get(uuid, {}).get(name, 0)
                if amount > has:
                    raise AllocationUpdateFailed(
                        f"Taking {amount} {name} on provider {uuid} from {instance} was refused: "
                        f"it holds {has} there."
                    )
                left[uuid][name] = has - amount
        wanted_holdings = {instance: Wanted(holding, _without_zeros(left), INSTANCE)}
        refusal = self._placement.exchange(wanted_holdings)
        if refusal is not None:
            raise AllocationMoveFailed(
                f"Taking what was attached from {instance} was refused: placement answered: "
                f"{refusal.detail}. Detach it again."
            )


def _sum(first: Allocations, other: Allocations) -> dict[str, dict[str, int]]:
    total = {uuid: dict(amounts) for uuid, amounts in first.items()}
    for uuid, amounts in other.items():
        there = total.setdefault(uuid, {})
        for name, amount in amounts.items():
            there[name] = there.get(name, 0) + amount
    return total


def _without_zeros(allocations: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    left = {
        u: {n: amount for n, amount in amounts.items() if amount}
        for u, amounts in allocations.items()
    }
    return {uuid: amounts for uuid, amounts in left.items() if amounts}
