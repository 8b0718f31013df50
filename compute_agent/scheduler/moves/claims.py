"""Claims of a move at its destination, and what the journal has to know before them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from compute_agent.errors import AllocationMoveFailed
from compute_agent.placement.allocations.allocations import INSTANCE, MIGRATION
from compute_agent.placement.allocations.amounts import Amounts
from compute_agent.placement.responses import NoCapacity
from compute_agent.placement.transports.transport import Microversion
from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.claiming.claims import Claims
from compute_agent.scheduler.claiming.journal import Journal
from compute_agent.scheduler.moves.move import Move, both_places, left_on_source
from compute_agent.scheduler.moves.steps import MoveStep, wanted_of
from compute_agent.scheduler.placement.candidates import Candidate
from compute_agent.scheduler.placement.client import PlacementClient
from compute_agent.scheduler.placement.holdings import Holding, WantedHolding
from compute_agent.scheduler.search.shared_holdings import SharedHoldings


@dataclass(slots=True, eq=False)
class Progress:
    """Progress of a move that is being begun: its line in the journal, and whether it wrote."""

    placement: PlacementClient
    journal: Journal
    line: str
    move: Move
    source_holding: Holding
    wrote: bool = field(default=False, init=False)

    def trying(self, move: Move) -> None:
        """Record in the journal what will be written next, before it is."""
        self.move = move
        generation = self.source_holding.record.get("consumer_generation")
        self.journal.update(self.line, MoveStep.of(move, "claim", generation))

    def write(self, wanted_holdings: Mapping[str, WantedHolding]) -> NoCapacity | None:
        """Write what consumers hold; what was refused for sure counts as not written."""
        try:
            refusal = self.placement.exchange(wanted_holdings)
        except AllocationMoveFailed:
            raise
        except BaseException:
            self.wrote = True
            raise
        self.wrote = self.wrote or refusal is None
        return refusal


class MoveClaims(Claims):
    """Claims the destination of a move, for an instance whose source is held.

    Only the move can undo them, which knows what its consumers held before.
    """

    def __init__(self, placement: PlacementClient, progress: Progress) -> None:
        self._progress = progress
        self._source_holding = progress.source_holding
        self.shared_holdings = SharedHoldings.of(placement, progress.move.source)
        self._sharing = frozenset(self.shared_holdings.amounts)

    def claim(
        self,
        instance: str,
        candidate: Candidate,
        spec: RequestSpec,  # noqa: ARG002 - part of the protocol; owners are those of the source
        microversion: Microversion,  # noqa: ARG002 - likewise; several consumers need their own
    ) -> NoCapacity | None:
        """See `Claims`."""
        move, there = self._progress.move, candidate.allocations
        source_amounts: Amounts = {}
        if move.migration:
            source_amounts = left_on_source(move.source, there, self._sharing)
        else:
            there = both_places(self._source_holding.allocations, there, self._sharing)
        move = replace(
            move, destination_root=candidate.root, destination=there, left_amounts=source_amounts
        )
        self._progress.trying(move)
        wanted_holdings = {
            instance: replace(
                wanted_of(move, self._source_holding, there, INSTANCE), mappings=candidate.mappings
            )
        }
        if move.migration:
            wanted_holdings[move.migration] = wanted_of(
                move, Holding({}, {}), source_amounts, MIGRATION
            )
        return self._progress.write(wanted_holdings)
