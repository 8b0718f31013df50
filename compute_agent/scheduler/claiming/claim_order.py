"""Order in which the candidates of a host are claimed, less those not worth trying."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from compute_agent.placement.allocations.allocations import NoCapacity
from compute_agent.scheduler.candidates import Candidate
from compute_agent.scheduler.causes import LostClaim


class HostOrder:
    """The candidates of one host, at most `most` of them tried.

    What is known to be short is not tried again: after provider P had too little of class C for
    an amount n, every candidate that takes n or more of C from P is left out.
    """

    def __init__(self, candidates: Sequence[Candidate], most: int) -> None:
        self._remaining_candidates = list(candidates)
        self._tries_left = most

    def next(self) -> Candidate | None:
        """Return the candidate to try next; `None` when the host is exhausted."""
        if not self._remaining_candidates or not self._tries_left:
            return None
        self._tries_left -= 1
        return self._remaining_candidates.pop(0)

    def record_refusal(self, candidate: Candidate, refusal: NoCapacity) -> None:
        """Leave out what cannot be claimed either, after `candidate` was refused."""
        amount = candidate.amount(refusal.provider, refusal.resource_class)
        if amount:
            self._remaining_candidates = [
                other
                for other in self._remaining_candidates
                if other.amount(refusal.provider, refusal.resource_class) < amount
            ]


def lost_claim(host: str, candidate: Candidate, refusal: NoCapacity) -> LostClaim:
    """Return what is reported about a candidate that could not be claimed."""
    return LostClaim(
        host,
        refusal.provider,
        refusal.resource_class,
        candidate.amount(refusal.provider, refusal.resource_class),
        refusal.detail,
    )


def lost_to_the_group(host: str, others: Collection[str]) -> LostClaim:
    """Return what is reported about a claim that was taken back for members of its group."""
    members = ", ".join(sorted(others))
    return LostClaim(
        host, detail=f"Members of the server group were claimed there at the same time: {members}"
    )
