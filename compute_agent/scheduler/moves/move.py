"""Moves of instances as values, and what the consumers hold while one is under way."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, field

from compute_agent.placement.allocations.amounts import Amounts, MutableAmounts, add
from compute_agent.programs.decoding import Misfit, Whole, convert
from compute_agent.request.errors import InvalidRequest


class MoveKind(StrEnum):
    """Kinds of moves, by what becomes of the allocations on the source.

    `cold` (cold migration and resize) and `live`: another consumer, named after the migration,
    holds them until the move is confirmed. `evacuate`: the instance holds both places until its
    dead source comes back.
    """

    COLD = "cold"
    LIVE = "live"
    EVACUATE = "evacuate"


class Move(Struct, frozen=True):
    """One move; the caller keeps it until the move is confirmed or reverted.

    There are no defaults: a document that lacks something is not a move.

    :param migration: consumer that holds the source meanwhile; empty for an evacuation.
    :param source_root: root provider of the host that the instance leaves.
    :param source: all that the instance held when the move began.
    :param mappings: group to providers of that claim, as the caller knew it; a revert returns it.
    :param destination_root: root provider of the host that was claimed, empty until then.
    :param destination: all that the instance holds once that is claimed.
    :param left_amounts: all that the migration holds then.
    """

    kind: MoveKind
    instance: str
    migration: str
    source_root: str
    source: Mapping[str, Mapping[str, Whole]]
    mappings: Mapping[str, tuple[str, ...]]
    destination_root: str
    destination: Mapping[str, Mapping[str, Whole]]
    left_amounts: Mapping[str, Mapping[str, Whole]] = field(name="left")
    project_id: str
    user_id: str


def move_kind(name: str) -> MoveKind:
    """Return the kind of this name.

    :raises InvalidRequest: there is none.
    """
    try:
        return MoveKind(name)
    except ValueError:
        raise InvalidRequest("kind", name, " or ".join(MoveKind)) from None


def move_of(body: Mapping[str, Any]) -> Move:
    """Return the move that was written as a document.

    :raises InvalidRequest: it is not such a document.
    """
    try:
        return convert(body, Move)
    except Misfit as error:
        raise InvalidRequest("the move", body, f"what begin_move returned ({error})") from error


def left_on_source(
    source: Amounts, destination: Amounts, sharing: Collection[str]
) -> MutableAmounts:
    """Return what the migration keeps once the instance holds `destination`.

    Everything, but on a provider that both places share: there instance and migration together
    hold the larger of the two amounts, since the disk exists once and either may be gone back to.
    """
    left_amounts: MutableAmounts = {}
    for uuid, resources in source.items():
        there = destination.get(uuid, {}) if uuid in sharing else {}
        remaining_amounts = {
            name: amount - there.get(name, 0) for name, amount in resources.items()
        }
        positive = {name: amount for name, amount in remaining_amounts.items() if amount > 0}
        if positive:
            left_amounts[uuid] = positive
    return left_amounts


def both_places(
    held_amounts: Amounts, destination: Amounts, sharing: Collection[str]
) -> MutableAmounts:
    """Return what an instance holds that is rebuilt at `destination` while its source is dead.

    The sum, but on a provider that both places share: there it holds what it needs now, so that
    nothing of the source is left on it when the source's own part is taken away.
    """
    total = add(held_amounts, destination)
    for uuid in destination.keys() & set(sharing):
        total[uuid].update(destination[uuid])
    return total
