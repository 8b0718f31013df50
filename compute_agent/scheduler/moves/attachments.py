"""Ports and accelerators that come to an instance, or leave it, while it runs."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from msgspec import Struct

from compute_agent.errors import AllocationMoveFailed, AllocationUpdateFailed
from compute_agent.placement.allocations.allocations import INSTANCE
from compute_agent.placement.allocations.amounts import (
    Amounts,
    add,
    covers,
    shortfalls,
    subtract,
    without_zeros,
)
from compute_agent.request import flavor
from compute_agent.request.candidate_request import CandidateRequest
from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.claiming.claims import lost_claim
from compute_agent.scheduler.errors import NoValidHost
from compute_agent.scheduler.outcomes import Causes, LostClaim
from compute_agent.scheduler.placement.client import PlacementClient
from compute_agent.scheduler.placement.holdings import Holding, WantedHolding
from compute_agent.scheduler.search.mappings import mappings_of
from compute_agent.scheduler.search.search import HostSearch
from compute_agent.scheduler.search.targets import root_of

LOG = logging.getLogger(__name__)

CANDIDATES_TRIED = 8


class Attachment(Struct, frozen=True):
    """What was added for a port or accelerator; the caller keeps it until it is detached.

    :param mappings: group to the providers that serve it.
    """

    allocations: Amounts
    mappings: Mapping[str, tuple[str, ...]]


class Attachments:
    """Adds to what instances hold on their host, and takes from it."""

    def __init__(self, placement: PlacementClient, search: HostSearch) -> None:
        self._placement = placement
        self._search = search

    def attach(self, spec: RequestSpec, instance: str, before: Amounts | None = None) -> Attachment:
        """Add what `spec` asks for to what an instance holds, on the host that it is on.

        :param spec: the groups of the port or accelerator alone, without a flavor's sizes.
        :param before: what the instance held before it is attached, as the caller knows it. With
            it, repeating returns what the first time added; without it, more is added.
        :raises NoValidHost: its host has not enough for that.
        :raises MoveRefused: the instance is on no host, or on several.
        :raises AllocationMoveFailed: another writer changed what it holds.
        """
        holding = self._placement.holding(instance)
        root = root_of(self._placement, instance, holding)
        request = flavor.request_of(spec, flavor.RequestOptions(limit=None))
        if before is not None and holding.allocations != before:
            return self._attached_before(request, instance, holding, before)
        lost_claims: list[LostClaim] = []
        for candidate in self._search.on_host(spec, request, root).candidates[:CANDIDATES_TRIED]:
            total = add(holding.allocations, candidate.allocations)
            refusal = self._placement.exchange({instance: WantedHolding(holding, total, INSTANCE)})
            if refusal is None:
                LOG.info("Added %s to what %s holds", candidate.allocations, instance)
                return Attachment(candidate.allocations, candidate.mappings)
            lost_claims.append(lost_claim(root, candidate, refusal))
        causes = Causes(claims_lost=tuple(lost_claims))
        if not lost_claims:
            reason = f"Host {root} of instance {instance} has no candidate for what is attached."
            raise NoValidHost(reason, Causes(notes=(reason,)))
        raise NoValidHost(causes.sentence(), causes)

    def _attached_before(
        self, request: CandidateRequest, instance: str, holding: Holding, before: Amounts
    ) -> Attachment:
        if covers(holding.allocations, before):
            added_amounts = without_zeros(subtract(holding.allocations, before))
            roots = set(self._placement.provider_roots(tuple(added_amounts)).values())
            traits: dict[str, frozenset[str]] = {}
            for root in sorted(roots):
                traits |= self._placement.tree(root)
            mappings = mappings_of(request, added_amounts, traits)
            if mappings is not None:
                return Attachment(added_amounts, mappings)
        raise _changed_meanwhile("Attaching to", instance)

    def detach(self, instance: str, resources: Amounts, before: Amounts | None = None) -> None:
        """Take from what an instance holds.

        :param resources: what was added for a port or accelerator: provider to class to amount.
        :param before: what the instance holds before it is detached, as the caller knows it. With
            it, repeating changes nothing; without it, as much is taken again.
        :raises AllocationUpdateFailed: the instance holds less than that.
        :raises AllocationMoveFailed: another writer changed what it holds.
        """
        holding = self._placement.holding(instance)
        if before is not None and holding.allocations != before:
            if holding.allocations == without_zeros(subtract(before, resources)):
                return
            raise _changed_meanwhile("Detaching from", instance)
        for shortfall in shortfalls(holding.allocations, resources):
            raise AllocationUpdateFailed(
                f"Taking {shortfall.amount} {shortfall.resource_class} on provider "
                f"{shortfall.provider} from {instance} was refused: it holds "
                f"{shortfall.held_amount} there."
            )
        remaining_amounts = subtract(holding.allocations, resources)
        wanted_holdings = {instance: WantedHolding(holding, remaining_amounts, INSTANCE)}
        doing = f"Undoing the attachment to {instance}"
        self._placement.write(doing, wanted_holdings, "Detach it again.")


def _changed_meanwhile(doing: str, instance: str) -> AllocationMoveFailed:
    return AllocationMoveFailed(
        f"{doing} {instance} was refused: it holds neither what it is said to hold before nor what "
        "it would hold after. Read what it holds, and repeat it with that."
    )
