"""Guests that take one another's places: what all of them hold is exchanged in one request.

    step     guests hold        the keeper holds                          then
    before   their sources      nothing
    claim    their places       what they left and none of them took      the command moves them all
    finish   their places       nothing
    revert   their sources      nothing

So every place is claimed before a guest leaves its own, and what they left cannot be taken until
they are moved: whether the command succeeds or fails, what they hold is where they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compute_agent.errors import AllocationMoveFailed
from compute_agent.placement.allocations.amounts import Amounts, MutableAmounts, add, of_record
from compute_agent.scheduler.errors import MoveRefused
from compute_agent.scheduler.moves.claims import INSTANCE, MIGRATION
from compute_agent.scheduler.placement.client import PlacementClient
from compute_agent.scheduler.placement.holdings import Holding, WantedHolding


@dataclass(frozen=True, slots=True)
class Exchange:
    """The exchange of all moves of a plan.

    :param keeper: the consumer that holds what the guests left.
    :param sources: by guest, what it held before.
    """

    client: PlacementClient
    keeper: str
    moves: Sequence[Mapping[str, Any]]
    sources: Mapping[str, Amounts]

    def claim(self) -> None:
        """Let all guests hold their places, if they do not yet.

        :raises AllocationMoveFailed: they do not fit any more; nothing is written.
        :raises MoveRefused: a guest holds neither its source nor its place.
        """
        holdings = self._holdings()
        held_amounts = {guest: holding.allocations for guest, holding in holdings.items()}
        if held_amounts == self._places:
            return
        if held_amounts != self.sources:
            raise MoveRefused(
                "Exchanging the places of "
                + ", ".join(g for g, n in held_amounts.items() if n != self.sources[g])
                + " was refused: they do not hold what they held when the plan was made."
            )
        self._write(holdings, self._places, self._left)

    def revert(self) -> None:
        """Let all guests hold their sources again.

        :raises AllocationMoveFailed: others changed what they hold; nothing is written.
        """
        self._write(self._holdings(), self.sources, {})

    def finish(self) -> None:
        """Release what the guests left."""
        self.client.release(self.keeper)

    def _holdings(self) -> dict[str, Holding]:
        return {guest: self.client.holding(guest) for guest in self.sources}

    @property
    def _places(self) -> dict[str, Amounts]:
        return {move["consumer"]: of_record(move) for move in self.moves}

    @property
    def _left(self) -> MutableAmounts:
        taken = add(*self._places.values())
        left: MutableAmounts = {}
        for uuid, resources in add(*self.sources.values()).items():
            for name, amount in resources.items():
                if (more := amount - taken.get(uuid, {}).get(name, 0)) > 0:
                    left.setdefault(uuid, {})[name] = more
        return left

    def _write(
        self, holdings: Mapping[str, Holding], amounts: Mapping[str, Amounts], left: Amounts
    ) -> None:
        owner = next(iter(holdings.values())).record
        mappings = {move["consumer"]: move["mappings"] for move in self.moves}
        wanted_holdings = {
            guest: WantedHolding(
                holding,
                amounts[guest],
                INSTANCE,
                mappings=mappings[guest] if amounts is not self.sources else None,
            )
            for guest, holding in holdings.items()
        }
        keeper = self.client.holding(self.keeper)
        if left or keeper.allocations:
            project, user = (str(owner.get(name, "")) for name in ("project_id", "user_id"))
            wanted_holdings[self.keeper] = WantedHolding(keeper, left, MIGRATION, project, user)
        refusal = self.client.exchange(wanted_holdings)
        if refusal is not None:
            raise AllocationMoveFailed(
                f"Exchanging the places of {', '.join(holdings)} was refused: placement answered: "
                f"{refusal.detail} Nothing was changed."
            )
