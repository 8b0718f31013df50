"""Claims of candidates: their order within a host, and their return when a request fails.

A claim that a request cannot use is given back at once, or as soon as placement answers. One that
could not be given back is in the journal until it is. A consumer that holds what the journal names
holds it through that claim, unless it was written since, as when a repeated claim was returned to
its caller.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from msgspec import Struct

from compute_agent.errors import PlacementError, PlacementUnavailable
from compute_agent.placement.allocations.amounts import Amounts, copy_of
from compute_agent.placement.responses import NoCapacity
from compute_agent.placement.transports.transport import Microversion
from compute_agent.programs.decoding import Whole
from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.claiming.journal import Journal, JournalUnusable
from compute_agent.scheduler.fleet.rolling_upgrade import CLAIMS, Fleet
from compute_agent.scheduler.outcomes import LostClaim
from compute_agent.scheduler.placement.candidates import Candidate
from compute_agent.scheduler.placement.client import PlacementClient
from compute_agent.scheduler.search.shared_holdings import SharedHoldings

LOG = logging.getLogger(__name__)

ON_THE_WAY_SECONDS: Final = 3600.0
"""Time in which an instance reaches its host: downloads of images, and builds that wait."""


class RecentClaims:
    """Consumers for which this process claimed lately. Safe in several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._claimed_at: dict[str, float] = {}

    def record(self, consumers: Collection[str]) -> None:
        """Remember that claims for these consumers begin now."""
        now = time.monotonic()
        with self._lock:
            for consumer in consumers:
                self._claimed_at.pop(consumer, None)
                self._claimed_at[consumer] = now
            # in the order of their times
            while now - next(iter(self._claimed_at.values()), now) >= ON_THE_WAY_SECONDS:
                del self._claimed_at[next(iter(self._claimed_at))]

    def consumers(self) -> list[str]:
        """Return the consumers that may be on their way."""
        earliest = time.monotonic() - ON_THE_WAY_SECONDS
        with self._lock:
            return [consumer for consumer, at in self._claimed_at.items() if at > earliest]


class ClaimToGiveBack(Struct, frozen=True, tag_field="op", tag="give_back"):
    """The claim of one consumer that could not be released, as the journal has it."""

    consumer: str
    allocations: Mapping[str, Mapping[str, Whole]]


class GiveBack:
    """Releases claims; what cannot be released now is written to the journal."""

    def __init__(self, placement: PlacementClient, journal: Journal) -> None:
        self._placement = placement
        self._journal = journal

    def all_of(self, candidates: Mapping[str, Candidate]) -> None:
        """Give back what every consumer holds, or may hold if the answer to its claim was lost."""
        for consumer, candidate in candidates.items():
            try:
                self._if_still_held(consumer, candidate.allocations)
            except PlacementError as error:
                self._write_down(consumer, copy_of(candidate.allocations), error)

    def process_journal(self) -> None:
        """Give back what the journal still holds.

        A consumer that holds something else by now was claimed again and is left alone.
        """
        for identity, entry in self._journal.entries_of(ClaimToGiveBack).items():
            consumer = entry.consumer
            try:
                self._if_still_held(consumer, entry.allocations)
            except PlacementUnavailable as error:
                LOG.warning("The journal is processed with the next request: %s", error)
                return
            except PlacementError as error:
                LOG.warning(
                    "The claim of %s stays in the journal and is released later: %s",
                    consumer,
                    error,
                )
                continue
            LOG.info("Released the claim of %s, which was in the journal", consumer)
            self._journal.close(identity)

    def _if_still_held(self, consumer: str, claimed_amounts: Amounts) -> None:
        holding = self._placement.holding(consumer)
        # the claim of a new consumer is its first write; a claim that was returned is written again
        written_once = holding.generation <= 1
        if holding.allocations == claimed_amounts and written_once:
            self._placement.release_exactly(consumer, holding)

    def _write_down(self, consumer: str, allocations: Amounts, error: PlacementError) -> None:
        try:
            self._journal.open(ClaimToGiveBack(consumer, allocations))
        except JournalUnusable as unusable:
            LOG.error(
                "The claim of %s could neither be released (%s) nor recorded (%s): release it "
                "with compute-scheduler release %s",
                consumer,
                error,
                unusable,
                consumer,
            )
            return
        LOG.warning(
            "The claim of %s could not be released (%s); it is recorded in %s and released "
            "with the next request",
            consumer,
            error,
            self._journal.path,
        )


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


class Claims(ABC):
    """What makes the claims of one request.

    `shared_holdings`: what the instance holds already and needs only once.
    """

    shared_holdings = SharedHoldings()

    @abstractmethod
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
        return False

    def give_back(self, candidates: Mapping[str, Candidate]) -> None:  # noqa: B027
        """Undo claims that can be undone; each may or may not have been carried out."""


class NewClaims(Claims):
    """Claims of instances that hold nothing yet: one request each.

    :param fleet: in which agents may be so old that they claim themselves; until all find their
        claims made already, nothing is claimed here. None: no agent does.
    """

    def __init__(
        self,
        placement: PlacementClient,
        give_back: GiveBack,
        fleet: Fleet | None = None,
    ) -> None:
        self._placement = placement
        self._give_back = give_back
        self._fleet = fleet

    def claim(
        self, instance: str, candidate: Candidate, spec: RequestSpec, microversion: Microversion
    ) -> NoCapacity | None:
        """See `Claims`."""
        if not self.can_be_undone():
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
        return self._fleet is None or not self._fleet.may_lack(CLAIMS)

    def give_back(self, candidates: Mapping[str, Candidate]) -> None:
        """See `Claims`; what placement fails to take back now is in the journal.

        What agents claim is not claimed before the request has ended.
        """
        self._give_back.all_of(candidates)
