"""Claims of candidates, and their return when a request fails."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.candidates import Candidate
from compute_agent.scheduler.claiming.release import GiveBack
from compute_agent.scheduler.placement import (
    ClaimAnswer,
    ClaimRefusal,
    Microversion,
    Placement,
)
from compute_agent.scheduler.search.shared_holdings import SharedHoldings

LOG = logging.getLogger(__name__)

AT_ONCE: Final = 8
"""Candidates in the first request of a claim with alternatives: one of them nearly always fits."""

Undo = Callable[[str, Candidate], None]


class Claims(Protocol):
    """What makes the claims of one request.

    ``shared_holdings``: what the instance holds already and needs only once.
    """

    shared_holdings: SharedHoldings

    def at_once(self) -> int:
        """Return how many candidates a first request may have; 1: no request has more."""

    def together(self) -> bool:
        """Whether several instances are claimed in one request, all or none."""

    def claim(
        self,
        instance: str,
        candidates: Sequence[Candidate],
        spec: RequestSpec,
        microversion: Microversion,
    ) -> ClaimAnswer:
        """Claim the first of `candidates` that fits for an instance, in one request.

        :raises AllocationUpdateFailed: the instance holds something that is not to be touched.
        """

    def undo(self) -> Undo | None:
        """Return what undoes a claim that was carried out, so that another can be made.

        `None` where that cannot be done, and the claim stays.
        """

    def give_back(self, candidates: Mapping[str, Sequence[Candidate]]) -> None:
        """Undo the claims of a request that failed; each may or may not have been carried out."""


class NewClaims:
    """Claims of instances that hold nothing yet: one request each.

    Where placement takes no alternatives, a request is for one candidate.
    """

    shared_holdings = SharedHoldings()

    def __init__(self, placement: Placement, give_back: GiveBack) -> None:
        self._placement = placement
        self._give_back = give_back

    def at_once(self) -> int:
        """See `Claims`."""
        return AT_ONCE if self._placement.takes_alternatives() else 1

    def together(self) -> bool:
        """See `Claims`."""
        return True

    def claim(
        self,
        instance: str,
        candidates: Sequence[Candidate],
        spec: RequestSpec,
        microversion: Microversion,
    ) -> ClaimAnswer:
        """See `Claims`."""
        requests = [candidate.as_request() for candidate in candidates]
        if self._placement.takes_alternatives():
            return self._placement.claim_first(
                instance,
                requests,
                project_id=spec.project_id,
                user_id=spec.user_id,
                consumer_type=spec.consumer_type,
            )
        refusal = self._placement.claim(
            instance,
            requests[0],
            project_id=spec.project_id,
            user_id=spec.user_id,
            microversion=microversion,
            consumer_type=spec.consumer_type,
        )
        return answer_about_one(refusal)

    def undo(self) -> Undo:
        """See `Claims`; what placement fails to take back now is in the journal."""
        return lambda instance, candidate: self._give_back.all_of({instance: [candidate]})

    def give_back(self, candidates: Mapping[str, Sequence[Candidate]]) -> None:
        """See `Claims`."""
        self._give_back.all_of(candidates)


class ClaimsOnceAllAgentsExpectThem:
    """Claims made by agents themselves while some are too old to find them made already.

    :param agents_claim: whether that is so now.
    """

    shared_holdings = SharedHoldings()

    def __init__(self, claims: Claims, agents_claim: Callable[[], bool]) -> None:
        self._claims = claims
        self._agents_claim = agents_claim

    def at_once(self) -> int:
        """See `Claims`."""
        return 1 if self._agents_claim() else self._claims.at_once()

    def together(self) -> bool:
        """See `Claims`."""
        return not self._agents_claim() and self._claims.together()

    def claim(
        self,
        instance: str,
        candidates: Sequence[Candidate],
        spec: RequestSpec,
        microversion: Microversion,
    ) -> ClaimAnswer:
        """See `Claims`."""
        if self._agents_claim():
            LOG.info(
                "The agent of host %s allocates for %s itself, so nothing is claimed",
                candidates[0].root,
                instance,
            )
            return answer_about_one(None)
        return self._claims.claim(instance, candidates, spec, microversion)

    def undo(self) -> Undo | None:
        """See `Claims`."""
        return None if self._agents_claim() else self._claims.undo()

    def give_back(self, candidates: Mapping[str, Sequence[Candidate]]) -> None:
        """See `Claims`; what agents claim is not claimed before this request has ended."""
        self._claims.give_back(candidates)


def answer_about_one(refusal: ClaimRefusal | None) -> ClaimAnswer:
    """Return the answer to a claim of one candidate."""
    return ClaimAnswer(0, {}) if refusal is None else ClaimAnswer(None, {0: refusal})
