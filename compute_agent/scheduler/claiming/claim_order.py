"""Order in which the candidates of one host are claimed, less those not worth trying."""

from __future__ import annotations

from collections.abc import Sequence

from compute_agent.scheduler.candidates import Candidate
from compute_agent.scheduler.causes import LostClaim
from compute_agent.scheduler.placement import ClaimRefusal


class ClaimOrder:
    """The candidates of one host, at most `most` of them tried.

    What is known to be short is not tried again: after provider P had too little of class C for
    an amount n, every candidate that takes n or more of C from P is left out.
    """

    def __init__(self, candidates: Sequence[Candidate], most: int) -> None:
        self._left = list(candidates)
        self._tries_left = most

    def next(self) -> Candidate | None:
        """Return the next candidate to try, `None` when the host is exhausted."""
        if not self._left or not self._tries_left:
            return None
        self._tries_left -= 1
        return self._left.pop(0)

    def failed(self, candidate: Candidate, refusal: ClaimRefusal) -> None:
        """Leave out what cannot be claimed either, after `candidate` was refused."""
        provider, resource_class = refusal.provider, refusal.resource_class
        amount = candidate.amount(provider, resource_class)
        if amount:
            self._left = [
                other for other in self._left if other.amount(provider, resource_class) < amount
            ]


def lost_claim(host: str, candidate: Candidate, refusal: ClaimRefusal) -> LostClaim:
    """Return what is reported about a candidate that could not be claimed."""
    return LostClaim(
        host,
        refusal.provider,
        refusal.resource_class,
        candidate.amount(refusal.provider, refusal.resource_class),
        refusal.detail,
    )
