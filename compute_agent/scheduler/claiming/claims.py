"""Claims of candidates, and their return when a request fails."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.candidates import Candidate
from compute_agent.scheduler.claiming.release import GiveBack
from compute_agent.scheduler.placement import ClaimRefusal, Microversion, Placement
from compute_agent.scheduler.search.shared_holdings import Carried

LOG = logging.getLogger(__name__)


class Claims(Protocol):
    """What makes the claims of one request.

    ``carried``: what the instance holds already and needs only once.
    """

    carried: Carried

    def claim(
        self, instance: str, candidate: Candidate, spec: RequestSpec, microversion: Microversion
    ) -> ClaimRefusal | None:
        """Claim `candidate` for an instance; return why not, `None` if it is claimed.

        :raises AllocationUpdateFailed: the instance holds something that is not to be touched.
        """

    def give_back(self, candidates: Mapping[str, Candidate]) -> None:
        """Undo the claims of a request that failed; each may or may not have been carried out."""


class NewClaims:
    """Claims of instances that hold nothing yet: one request each."""

    carried = Carried()

    def __init__(self, placement: Placement, give_back: GiveBack) -> None:
        self._placement = placement
        self._give_back = give_back

    def claim(
        self, instance: str, candidate: Candidate, spec: RequestSpec, microversion: Microversion
    ) -> ClaimRefusal | None:
        """See `Claims`."""
        return self._placement.claim(
            instance,
            candidate.as_request(),
            project_id=spec.project_id,
            user_id=spec.user_id,
            microversion=microversion,
            consumer_type=spec.consumer_type,
        )

    def give_back(self, candidates: Mapping[str, Candidate]) -> None:
        """See `Claims`."""
        self._give_back.all_of(candidates)


class ClaimsOnceAllAgentsExpectThem:
    """Claims made by agents themselves while some are too old to find them made already.

    :param agents_claim: whether that is so now.
    """

    carried = Carried()

    def __init__(self, claims: Claims, agents_claim: Callable[[], bool]) -> None:
        self._claims = claims
        self._agents_claim = agents_claim

    def claim(
        self, instance: str, candidate: Candidate, spec: RequestSpec, microversion: Microversion
    ) -> ClaimRefusal | None:
        """See `Claims`."""
        if self._agents_claim():
            LOG.info(
                "The agent of host %s allocates for %s itself, so nothing is claimed",
                candidate.root,
                instance,
            )
            return None
        return self._claims.claim(instance, candidate, spec, microversion)

    def give_back(self, candidates: Mapping[str, Candidate]) -> None:
        """See `Claims`; what agents claim is not claimed before this request has ended."""
        self._claims.give_back(candidates)
