"""Claims that take the place of another claim of the same instance, in one request."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from compute_agent.placement.responses import NoCapacity
from compute_agent.placement.transports.transport import Microversion
from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.placement.candidates import Candidate
from compute_agent.scheduler.placement.client import PlacementClient
from compute_agent.scheduler.placement.holdings import Holding, WantedHolding
from compute_agent.scheduler.search.shared_holdings import SharedHoldings

LOG = logging.getLogger(__name__)


class ReplacingClaims:
    """Claims for an instance that gives up what it holds, if it gets something else.

    :param holding: what it holds; nobody else may have changed it since.
    """

    def __init__(self, placement: PlacementClient, holding: Holding) -> None:
        self._placement = placement
        self._holding = holding
        self.shared_holdings = SharedHoldings.of(placement, holding.allocations)

    def claim(
        self,
        instance: str,
        candidate: Candidate,
        spec: RequestSpec,
        microversion: Microversion,  # noqa: ARG002 - part of the protocol; an exchange has its own
    ) -> NoCapacity | None:
        """See `Claims`."""
        wanted_holding = WantedHolding(
            self._holding,
            candidate.allocations,
            spec.consumer_type,
            spec.project_id,
            spec.user_id,
            candidate.mappings,
        )
        return self._placement.exchange({instance: wanted_holding})

    def can_be_undone(self) -> bool:
        """See `Claims`: what the instance held before is gone."""
        return False

    def give_back(self, candidates: Mapping[str, Candidate]) -> None:
        """Leave the instance what it holds: a replacement was made whole or not at all."""
        LOG.debug("Consumers %s keep what they hold", ", ".join(candidates) or "nobody")
