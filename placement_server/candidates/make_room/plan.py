"""Plans, what they may do, and an order of their moves in which every step holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from placement_server.candidates.make_room.holdings import Amounts, Key
from placement_server.candidates.make_room.places import Place
from placement_server.candidates.make_room.state import Free

# Sets of moves that are looked at before an order is given up.
_MOST_SETS: Final = 1000


class Move(NamedTuple):
    """A consumer, what it holds, and the place that it gets."""

    consumer: int
    held: Amounts
    place: Place


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a plan may do.

    :ivar count: how many places of the request there are to be.
    :ivar most_moves: how many consumers may move beside those of the trees to be emptied.
    :ivar swap: whether all moves are made together, so that only the end has to hold.
    :ivar plans: how many plans to return, at most, of equally many moves.
    :ivar seconds: when to return the best so far.
    """

    count: int = 1
    most_moves: int = 3
    swap: bool = False
    plans: int = 1
    seconds: float = 2.0


@dataclass(frozen=True, slots=True)
class Plan:
    """Moves in order, and the places that the request has after them.

    :ivar memory: what the consumers hold of it.
    :ivar stuck: consumers of trees to be emptied for which there is no place.
    :ivar is_whole: False where all that was asked for could not be had.
    """

    moves: tuple[Move, ...]
    places: tuple[Place, ...]
    memory: int
    stuck: tuple[int, ...] = ()
    is_whole: bool = True

    @property
    def consumers(self) -> frozenset[int]:
        """Who moves."""
        return frozenset(move.consumer for move in self.moves)

    @property
    def cost(self) -> tuple[int, int]:
        """What plans are compared by."""
        return len(self.moves), self.memory


@dataclass(slots=True)
class Answer:
    """Plans, the best first.

    :ivar is_proved: whether there is no better one within the bounds.
    """

    plans: list[Plan] = field(default_factory=list)
    is_proved: bool = True


@dataclass(slots=True)
class Steps:
    """An order of some moves.

    :ivar order: None where there is none.
    :ivar blocked: what is lacked by moves that cannot be made at some point, one dict for each.
    :ivar is_whole: whether every order was tried.
    """

    order: list[Move] | None
    blocked: list[dict[Key, int]]
    is_whole: bool


def find_order(moves: Sequence[Move], base: Free) -> Steps:
    """Find an order in which each move fits while what it leaves is still held.

    :param base: what is free before the first.
    """
    changes: list[dict[Key, int]] = []
    for move in moves:
        change = dict(move.held)
        for key, amount in move.place.amounts:
            change[key] = change.get(key, 0) - amount
        changes.append(change)
    seen = set[frozenset[int]]()
    steps = Steps(None, [], True)

    def lacks(move: Move, made: frozenset[int]) -> dict[Key, int]:
        short = {}
        for key, amount in move.place.amounts:
            free = int(base[key[1]][key[0]]) + sum(changes[at].get(key, 0) for at in made)
            if free < amount:
                short[key] = amount - free
        return short

    def go_on(made: frozenset[int], order: tuple[int, ...]) -> tuple[int, ...] | None:
        if len(order) == len(moves):
            return order
        if made in seen:
            return None
        if len(seen) == _MOST_SETS:
            steps.is_whole = False
            return None
        seen.add(made)
        for at, move in enumerate(moves):
            if at in made:
                continue
            short = lacks(move, made)
            if short:
                steps.blocked.append(short)
                continue
            whole_order = go_on(made | {at}, (*order, at))
            if whole_order is not None:
                return whole_order
        return None

    found_order = go_on(frozenset(), ())
    if found_order is not None:
        steps.order = [moves[at] for at in found_order]
    return steps
