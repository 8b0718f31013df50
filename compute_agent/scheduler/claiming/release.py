"""Return of claims that a request cannot use, at once or as soon as placement answers.

operation   written                                              until
give_back   when a claim could not be given back                 it is
claims      before each claim of a request for several           the request has ended; what
instances, with all that they hold by then           its process left is given back
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from compute_agent.errors import PlacementError, PlacementUnavailable
from compute_agent.placement.amounts import Amounts, copy_of
from compute_agent.scheduler.candidates import Candidate
from compute_agent.scheduler.claiming.journal import Journal, JournalUnusable
from compute_agent.scheduler.placement import Placement
from compute_agent.state.shapes import AMOUNTS, TEXT, Shape, map_of, object_of

LOG = logging.getLogger(__name__)

OP = "give_back"
ENTRY = Shape("a claim to give back", object_of({"consumer": TEXT, "allocations": map_of(AMOUNTS)}))

UNFINISHED_OP = "claims"
UNFINISHED_ENTRY = Shape("claims of one request", object_of({"claims": map_of(map_of(AMOUNTS))}))


class HeldClaims:
    """What the instances of one request hold, or may hold if the answer to a claim was lost.

    :param write: writes it down for whoever goes on after a crash.
    :param close: ends what was written down.
    """

    def __init__(
        self,
        write: Callable[[Mapping[str, Any]], None] = lambda _entry: None,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self._write = write
        self.close = close
        self._candidates: dict[str, Candidate] = {}

    def trying(self, instance: str, candidate: Candidate) -> None:
        """Note a claim that is made next.

        :raises JournalUnusable: it cannot be written down; the claim must not be made.
        """
        self._candidates[instance] = candidate
        self._write(
            {
                "op": UNFINISHED_OP,
                "claims": {i: copy_of(c.allocations) for i, c in self._candidates.items()},
            }
        )

    def lost(self, instance: str) -> None:
        """Note that the claim last tried for an instance was refused for sure."""
        del self._candidates[instance]

    @property
    def candidates(self) -> Mapping[str, Candidate]:
        """The candidates that are held, by instance."""
        return self._candidates


class GiveBack:
    """Releases claims; what cannot be released now is written to the journal."""

    def __init__(self, placement: Placement, journal: Journal) -> None:
        self._placement = placement
        self._journal = journal

    @contextmanager
    def remembered(self, instances: Sequence[str]) -> Iterator[HeldClaims]:
        """Yield a place for the claims of one request, which nobody else gives back in the block.

        It is written down where a crash could leave some of several instances claimed; a single
        claim is made or not. What is not closed in the block is given back by `process_journal`.

        :raises JournalUnusable: the journal cannot be written.
        """
        if len(instances) < 2:
            yield HeldClaims()
            return
        with self._journal.begun({"op": UNFINISHED_OP, "claims": {}}) as line:
            yield HeldClaims(
                lambda entry: self._journal.update(line, entry), lambda: self._journal.close(line)
            )

    def all_of(self, candidates: Mapping[str, Candidate]) -> None:
        """Give back what every consumer holds, or may hold if the answer to its claim was lost."""
        for consumer, candidate in candidates.items():
            allocations = copy_of(candidate.allocations)
            try:
                self._if_still_held(consumer, allocations)
            except PlacementError as error:
                self._write_down(consumer, allocations, error)

    def process_journal(self) -> None:
        """Give back what the journal still holds.

        A consumer that holds something else by now was claimed again and is left alone.
        """
        for identity, entry in self._journal.entries_of(OP, ENTRY).items():
            consumer = entry["consumer"]
            try:
                self._if_still_held(consumer, entry["allocations"])
            except PlacementUnavailable as error:
                LOG.warning("The journal is processed with the next request: %s", error)
                return
            except PlacementError as error:
                LOG.warning(
                    "The claim of %s stays in the journal and is given back later: %s",
                    consumer,
                    error,
                )
                continue
            LOG.info("Gave back the claim of %s, which was in the journal", consumer)
            self._journal.close(identity)
        for identity in self._journal.entries_of(UNFINISHED_OP, UNFINISHED_ENTRY):
            with self._journal.taken_over(identity, UNFINISHED_ENTRY) as unfinished:
                if unfinished is not None:
                    self._end_unfinished(identity, unfinished["claims"])

    def _end_unfinished(self, identity: str, claims: Mapping[str, Amounts]) -> None:
        try:
            for consumer, allocations in claims.items():
                self._if_still_held(consumer, allocations)
        except PlacementError as error:
            LOG.warning(
                "The claims of a request whose scheduler died stay in the journal and are given "
                "back later: %s",
                error,
            )
            return
        LOG.info(
            "Gave back what a request had claimed whose scheduler died: %s",
            ", ".join(claims) or "nothing",
        )
        self._journal.close(identity)

    def _if_still_held(self, consumer: str, allocations: Amounts) -> None:
        holding = self._placement.holding(consumer)
        if holding.allocations == allocations:
            self._placement.release_exactly(consumer, holding)

    def _write_down(self, consumer: str, allocations: Amounts, error: PlacementError) -> None:
        try:
            self._journal.open({"op": OP, "consumer": consumer, "allocations": allocations})
        except JournalUnusable as unusable:
            LOG.error(
                "The claim of %s could neither be given back (%s) nor recorded (%s): release it "
                "with compute-scheduler release %s",
                consumer,
                error,
                unusable,
                consumer,
            )
            return
        LOG.warning(
            "The claim of %s could not be given back (%s); it is recorded in %s and given back "
            "with the next request",
            consumer,
            error,
            self._journal.path,
        )
