"""Claims of candidates, and their return when a request fails."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from compute_agent.placement.allocations.allocations import NoCapacity
from compute_agent.placement.transports.transport import Microversion
from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.candidates import Candidate
from compute_agent.scheduler.claiming.release import GiveBack
from compute_agent.scheduler.placement_client import PlacementClient
from compute_agent.scheduler.search.shared_holdings import SharedHoldings

LOG = logging.getLogger(__name__)


class Claims(Protocol):
    """What makes the claims of one request.

    ``shared_holdings``: what the instance holds already and needs only once.
    """

    shared_holdings: SharedHoldings

    def claim(
        self, instance: str, candidate: Candidate, spec: RequestSpec, microversion: Microversion
    ) -> NoCapacity | None:
        """Claim a candidate for an instance; return what it lacks, `None` where it is claimed.

        :raises AllocationUpdateFailed: the instance holds something that is not to be touched.
        """

    def can_be_undone(self) -> bool:
        """Whether a claim that was carried out can be given back, so that another can be made.

        Then several instances are claimed in one request, all or none.
        """

    def give_back(self, candidates: Mapping[str, Candidate]) -> None:
        """Undo claims; each may or may not have been carried out."""


class NewClaims:
    """Claims of instances that hold nothing yet: one request each.

    :param agents_claim: whether some agents are so old now that they claim themselves; until all
        find their claims made already, nothing is claimed here.
    """

    shared_holdings = SharedHoldings()

    def __init__(
        self,
        placement: PlacementClient,
        give_back: GiveBack,
        agents_claim: Callable[[], bool] = lambda: False,
    ) -> None:
        self._placement = placement
        self._give_back = give_back
        self._agents_claim = agents_claim

    def claim(
        self, instance: str, candidate: Candidate, spec: RequestSpec, microversion: Microversion
    ) -> NoCapacity | None:
        """See `Claims`."""
        if self._agents_claim():
            LOG.info(
                "The agent of host %s allocates for %s itself, so nothing is claimed",
                candidate.root,
                instance,
            )
            return None
        return self._placement.claim(
            instance,
            candidate.as_request(),
            project_id=spec.project_id,
            user_id=spec.user_id,
            microversion=microversion,
            consumer_type=spec.consumer_type,
        )

    def can_be_undone(self) -> bool:
        """See `Claims`."""
        return not self._agents_claim()

    def give_back(self, candidates: Mapping[str, Candidate]) -> None:
        """See `Claims`; what placement fails to take back now is in the journal.

        What agents claim is not claimed before the request has ended.
        """
        self._give_back.all_of(candidates)
