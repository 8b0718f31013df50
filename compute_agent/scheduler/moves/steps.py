"""Steps of moves, each of them one line of the journal and one request to placement."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import UNSET, UnsetType
from msgspec.structs import asdict

from compute_agent.errors import AllocationMoveFailed
from compute_agent.placement.allocations.allocations import INSTANCE, MIGRATION
from compute_agent.placement.allocations.amounts import Amounts, covers
from compute_agent.placement.responses import NoCapacity
from compute_agent.programs.decoding import Whole
from compute_agent.scheduler.errors import MoveRefused
from compute_agent.scheduler.moves.move import Move
from compute_agent.scheduler.placement.client import PlacementClient
from compute_agent.scheduler.placement.holdings import Holding, WantedHolding

Step: TypeAlias = Literal["claim", "confirm", "revert", "return"]


class MoveStep(Move, frozen=True, kw_only=True, tag_field="op", tag="move"):
    """One step of a move, as the journal has it.

    :param generation: of the instance when the step was written down, where it was known.
    """

    step: Step
    generation: Whole | UnsetType = UNSET

    @property
    def known_generation(self) -> int | None:
        """The generation, `None` where it was not known."""
        return None if self.generation is UNSET else self.generation

    @classmethod
    def of(cls, move: Move, step: Step, generation: int | None = None) -> MoveStep:
        """Return a step of a move, of an instance whose generation may be known."""
        known_generation = UNSET if generation is None else generation
        return cls(**asdict(move), step=step, generation=known_generation)


def carry_out(
    placement: PlacementClient, move: Move, step: Step, generation: int | None = None
) -> None:
    """Carry out a step.

    :param generation: of the instance when the step was written down; `None` for any.
    :raises MoveRefused: others have written the instance since.
    """
    if (
        generation is not None
        and step != "claim"
        and placement.holding(move.instance).generation != generation
    ):
        raise MoveRefused(
            f"Completing a step of the move of {move.instance} was refused: it was completed, "
            "or others have changed what the instance holds since."
        )
    if step == "confirm":
        placement.release(move.migration)
    elif step == "return":
        _take_away_source(placement, move)
    elif step == "revert":
        _restore(placement, move)
    else:
        undo_begin(placement, move, generation)


def undo_begin(placement: PlacementClient, move: Move, generation: int | None = None) -> None:
    """Give back after a begin that failed or died, unless another writer went on from there.

    :param generation: of the instance before the begin, which wrote it once; a caller that
        received the begun move has written it again, see `acknowledge`.
    """
    holding = placement.holding(move.instance)
    if generation is not None and holding.generation > generation + 1:
        raise MoveRefused(
            f"Undoing the move of {move.instance} was refused: another scheduler continues it."
        )
    held_amounts = holding.allocations
    kept_amounts = _source_holding(placement, move).allocations
    if (held_amounts, kept_amounts) in (
        (move.source, {}),
        (move.destination, move.left_amounts),
    ):
        _restore(placement, move)
        return
    raise MoveRefused(
        f"Undoing the move of {move.instance} was refused: the consumers hold what this move "
        "never wrote."
    )


def _source_holding(placement: PlacementClient, move: Move) -> Holding:
    return placement.holding(move.migration) if move.migration else Holding({}, {})


def _restore(placement: PlacementClient, move: Move) -> None:
    holding = placement.holding(move.instance)
    kept_source = _source_holding(placement, move)
    if holding.allocations == move.source and not kept_source.allocations:
        return
    if move.migration:
        if not kept_source.allocations:
            raise MoveRefused(
                f"Reverting the move of {move.instance} was refused: migration "
                f"{move.migration} holds nothing, so the move was confirmed or never begun."
            )
    elif not covers(holding.allocations, move.source):
        raise MoveRefused(
            f"Reverting the evacuation of {move.instance} was refused: it does not hold its "
            f"source {move.source_root} any more."
        )
    wanted_holdings = {move.instance: wanted_of(move, holding, move.source, INSTANCE)}
    if move.migration:
        wanted_holdings[move.migration] = wanted_of(move, kept_source, {}, MIGRATION)
    raise_refusal(move, placement.exchange(wanted_holdings))


def _take_away_source(placement: PlacementClient, move: Move) -> None:
    holding = placement.holding(move.instance)
    source = set(placement.tree(move.source_root))
    if not source & set(holding.allocations):
        return
    remaining_amounts = {uuid: n for uuid, n in holding.allocations.items() if uuid not in source}
    if not set(remaining_amounts) - placement.sharing(tuple(remaining_amounts)):
        raise MoveRefused(
            f"Taking the source {move.source_root} from {move.instance} was refused: it is on "
            "no other host."
        )
    wanted_holdings = {move.instance: wanted_of(move, holding, remaining_amounts, INSTANCE)}
    raise_refusal(move, placement.exchange(wanted_holdings))


def wanted_of(move: Move, holding: Holding, allocations: Amounts, kind: str) -> WantedHolding:
    """Return what a consumer of a move shall hold, owned as the source was."""
    return WantedHolding(holding, allocations, kind, move.project_id, move.user_id)


def raise_refusal(move: Move, refusal: NoCapacity | None) -> None:
    """Raise when what an instance held could not be written as it was."""
    if refusal is None:
        return
    doing = f"Writing the allocations of {move.instance} was refused"
    if refusal.resource_class:
        raise AllocationMoveFailed(
            f"{doing}: provider {refusal.provider} has too little {refusal.resource_class} for "
            "what it held there. Check whether its inventory was reduced below what is in use."
        )
    raise AllocationMoveFailed(
        f"{doing}: placement answered: {refusal.detail} Nothing was changed; repeat the step."
    )
