"""Plans, what they may do, and an order of their moves in which every step holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
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
    :ivar blocked: what is lacked by moves that cannot be made at some point.
    :ivar is_whole: whether every order was tried.
    """

    order: list[Move] | None
    blocked: set[frozenset[tuple[Key, int]]]
    is_whole: bool


def find_order(moves: Sequence[Move], base: Free, look: Callable[[], None]) -> Steps:
    """Find an order in which each move fits while what it leaves is still held.

    :param base: what is free before the first.
    :param look: called now and then; may raise.
    """
    freed = Counter[Key]()
    steps = Steps(None, set(), True)
    # a bit for each move that is made, and which may be the next
    stack = [(0, iter(range(len(moves))))]
    seen, order = set[int](), list[int]()
    while len(order) < len(moves):
        look()
        made, candidates = stack[-1]
        for at in candidates:
            further = made | 1 << at
            if further == made or further in seen:
                continue
            short = _shortage(moves[at].place.amounts, base, freed)
            if short:
                steps.blocked.add(short)
            elif len(seen) == _MOST_SETS + len(moves):
                steps.is_whole = False
            else:
                seen.add(further)
                stack.append((further, iter(range(len(moves)))))
                order.append(at)
                _add(freed, moves[at], 1)
                break
        else:
            stack.pop()
            if not stack:
                return steps
            _add(freed, moves[order.pop()], -1)
    steps.order = [moves[at] for at in order]
    return steps


def _shortage(amounts: Amounts, base: Free, freed: Counter[Key]) -> frozenset[tuple[Key, int]]:
    free = ((key, int(base[key[1]][key[0]]) + freed[key], amount) for key, amount in amounts)
    return frozenset((key, amount - left) for key, left, amount in free if left < amount)


def _add(freed: Counter[Key], move: Move, sign: int) -> None:
    """Record that a move is made, or not made any more."""
    for key, amount in move.held:
        freed[key] += sign * amount
    for key, amount in move.place.amounts:
        freed[key] -= sign * amount
