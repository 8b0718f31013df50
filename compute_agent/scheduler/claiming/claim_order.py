"""Order in which candidates are claimed, host by host, less those not worth trying."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import islice

from compute_agent.scheduler.candidates import Candidate
from compute_agent.scheduler.causes import LostClaim
from compute_agent.scheduler.host_state import HostState
from compute_agent.scheduler.placement import ClaimRefusal

Offer = tuple[HostState, Candidate]


class HostOrder:
    """The candidates of one host, at most `most` of them tried.

    What is known to be short is not tried again: after provider P had too little of class C for
    an amount n, every candidate that takes n or more of C from P is left out.
    """

    def __init__(self, candidates: Sequence[Candidate], most: int) -> None:
        self._remaining_candidates = list(candidates)
        self._tries_left = most

    def ahead(self) -> Sequence[Candidate]:
        """Return the candidates to try next; none when the host is exhausted."""
        return self._remaining_candidates[: self._tries_left]

    def record_refusal(self, candidate: Candidate, refusal: ClaimRefusal) -> bool:
        """Leave out what cannot be claimed either, after `candidate` was refused.

        :returns: False when it was left out already, after another of the same request.
        """
        if not any(other is candidate for other in self._remaining_candidates):
            return False
        self._tries_left -= 1
        provider, resource_class = refusal.provider, refusal.resource_class
        amount = candidate.amount(provider, resource_class)
        self._remaining_candidates = [
            other
            for other in self._remaining_candidates
            if other is not candidate
            and not (amount and other.amount(provider, resource_class) >= amount)
        ]
        return True


class ClaimOrder:
    """The candidates of several hosts: all of one that may be tried come before the next host."""

    def __init__(self, hosts: Sequence[HostState], most_per_host: int) -> None:
        self._hosts = list(hosts)
        self._most_per_host = most_per_host
        self._orders: dict[str, HostOrder] = {}

    def next(self, most: int) -> list[Offer]:
        """Return the next candidates to try, at most `most`; none when all hosts are exhausted."""
        while self._hosts and not self._order(self._hosts[0]).ahead():
            del self._hosts[0]
        return list(islice(self._offers(), most))

    def record_refusal(self, offer: Offer, refusal: ClaimRefusal) -> bool:
        """See `HostOrder`."""
        host, candidate = offer
        return self._order(host).record_refusal(candidate, refusal)

    def leave_out(self, host: HostState) -> None:
        """Try no candidate of a host any more."""
        self._hosts = [other for other in self._hosts if other is not host]

    def _order(self, host: HostState) -> HostOrder:
        # made when it is needed: of thousands of hosts the first few are tried
        if host.uuid not in self._orders:
            self._orders[host.uuid] = HostOrder(host.candidates, self._most_per_host)
        return self._orders[host.uuid]

    def _offers(self) -> Iterator[Offer]:
        for host in self._hosts:
            for candidate in self._order(host).ahead():
                yield host, candidate


def lost_claim(host: str, candidate: Candidate, refusal: ClaimRefusal) -> LostClaim:
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
