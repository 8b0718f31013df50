"""Return of claims that a request cannot use, at once or as soon as placement answers.

A claim that could not be given back is in the journal until it is. A consumer that holds what it
says holds it through that claim, unless it was written since, as when a repeated claim was returned
to its caller.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from compute_agent.errors import PlacementError, PlacementUnavailable
from compute_agent.placement.allocations.amounts import Amounts, copy_of
from compute_agent.scheduler.candidates import Candidate
from compute_agent.scheduler.claiming.journal import Journal, JournalUnusable
from compute_agent.scheduler.placement_client import PlacementClient
from compute_agent.state.shapes import AMOUNTS, TEXT, Shape, map_of, object_of

LOG = logging.getLogger(__name__)

OP = "give_back"
ENTRY = Shape("a claim to give back", object_of({"consumer": TEXT, "allocations": map_of(AMOUNTS)}))


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
        for identity, entry in self._journal.entries_of(OP, ENTRY).items():
            consumer = entry["consumer"]
            try:
                self._if_still_held(consumer, entry["allocations"])
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
        written_once = int(holding.record.get("consumer_generation") or 0) <= 1
        if holding.allocations == claimed_amounts and written_once:
            self._placement.release_exactly(consumer, holding)

    def _write_down(self, consumer: str, allocations: Amounts, error: PlacementError) -> None:
        try:
            self._journal.open({"op": OP, "consumer": consumer, "allocations": allocations})
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
