"""Return of claims that a request cannot use, at once or as soon as placement answers.

A claim that could not be given back is in the journal until it is. One with alternatives is written
with all of them: a consumer that holds one of them holds it through that claim, unless it was
written since, as when a repeated claim was returned to its caller.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from compute_agent.errors import PlacementError, PlacementUnavailable
from compute_agent.placement.allocations.amounts import Amounts, copy_of
from compute_agent.scheduler.candidates import Candidate
from compute_agent.scheduler.claiming.journal import Journal, JournalUnusable
from compute_agent.scheduler.placement import Placement
from compute_agent.state.shapes import AMOUNTS, TEXT, Shape, list_of, map_of, object_of

LOG = logging.getLogger(__name__)

OP = "give_back"
ENTRY = Shape(
    "a claim to give back",
    object_of(
        {"consumer": TEXT, "allocations": map_of(AMOUNTS)},
        {"alternatives": list_of(map_of(AMOUNTS))},
    ),
)


class HeldClaims:
    """What the instances of one request hold, or may hold if the answer to a claim was lost."""

    def __init__(self) -> None:
        self._candidates: dict[str, Sequence[Candidate]] = {}

    def trying(self, instance: str, candidates: Sequence[Candidate]) -> None:
        """Note a claim that is made next, of one of these candidates."""
        self._candidates[instance] = candidates

    def record_success(self, instance: str, candidate: Candidate) -> None:
        """Note which candidate the claim last tried for an instance got."""
        self._candidates[instance] = [candidate]

    def record_refusal(self, instance: str) -> None:
        """Note that the claim last tried for an instance was refused for sure."""
        del self._candidates[instance]

    @property
    def candidates(self) -> Mapping[str, Sequence[Candidate]]:
        """The candidates of which one is held, or may be, by instance."""
        return self._candidates


class GiveBack:
    """Releases claims; what cannot be released now is written to the journal."""

    def __init__(self, placement: Placement, journal: Journal) -> None:
        self._placement = placement
        self._journal = journal

    def all_of(self, candidates: Mapping[str, Sequence[Candidate]]) -> None:
        """Give back what every consumer holds, or may hold if the answer to its claim was lost."""
        for consumer, own_candidates in candidates.items():
            alternatives = [copy_of(candidate.allocations) for candidate in own_candidates]
            try:
                self._if_still_held(consumer, alternatives)
            except PlacementError as error:
                self._write_down(consumer, alternatives, error)

    def process_journal(self) -> None:
        """Give back what the journal still holds.

        A consumer that holds something else by now was claimed again and is left alone.
        """
        for identity, entry in self._journal.entries_of(OP, ENTRY).items():
            consumer = entry["consumer"]
            try:
                self._if_still_held(
                    consumer, [entry["allocations"], *entry.get("alternatives", ())]
                )
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

    def _if_still_held(self, consumer: str, alternatives: Sequence[Amounts]) -> None:
        holding = self._placement.holding(consumer)
        # the claim of a new consumer is its first write; a claim that was returned is written again
        written_once = int(holding.record.get("consumer_generation") or 0) <= 1
        if holding.allocations in alternatives and written_once:
            self._placement.release_exactly(consumer, holding)

    def _write_down(
        self, consumer: str, alternatives: Sequence[Amounts], error: PlacementError
    ) -> None:
        allocations, *others = alternatives
        entry: dict[str, Any] = {"op": OP, "consumer": consumer, "allocations": allocations}
        if others:
            entry["alternatives"] = others
        try:
            self._journal.open(entry)
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
