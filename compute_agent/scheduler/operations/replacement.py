"""Claims that take the place of another claim of the same instance, in one request."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.candidates import Candidate
from compute_agent.scheduler.claiming.claims import answer_about_one
from compute_agent.scheduler.placement import (
    ClaimAnswer,
    Holding,
    Microversion,
    Placement,
    WantedHolding,
)
from compute_agent.scheduler.search.shared_holdings import SharedHoldings

LOG = logging.getLogger(__name__)


class ReplacingClaims:
    """Claims for an instance that gives up what it holds, if it gets something else.

    :param holding: what it holds; nobody else may have changed it since.
    """

    def __init__(self, placement: Placement, holding: Holding) -> None:
        self._placement = placement
        self._holding = holding
        self.shared_holdings = SharedHoldings.of(placement, holding.allocations)

    def at_once(self) -> int:
        """See `Claims`: an exchange knows one wish."""
        return 1

    def together(self) -> bool:
        """See `Claims`: there is one instance."""
        return False

    def claim(
        self,
        instance: str,
        candidates: Sequence[Candidate],
        spec: RequestSpec,
        microversion: Microversion,  # noqa: ARG002 - part of the protocol; an exchange has its own
    ) -> ClaimAnswer:
        """See `Claims`."""
        candidate = candidates[0]
        wanted_holding = WantedHolding(
            self._holding,
            candidate.allocations,
            spec.consumer_type,
            spec.project_id,
            spec.user_id,
            candidate.mappings,
        )
        return answer_about_one(self._placement.exchange({instance: wanted_holding}))

    def undo(self) -> None:
        """See `Claims`: what the instance held before is gone."""

    def give_back(self, candidates: Mapping[str, Sequence[Candidate]]) -> None:
        """Leave the instance what it holds: a replacement was made whole or not at all."""
        LOG.debug("Consumers %s keep what they hold", ", ".join(candidates) or "nobody")
