"""Plans, what they may do and break, and an order of their moves in which every step holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from msgspec import Struct

from placement_server.candidates.index.arrays import IntArray
from placement_server.candidates.index.index import Index
from placement_server.candidates.make_room.holdings import Amounts, Key
from placement_server.candidates.make_room.places import Free, Place, State

# Sets of moves that are looked at before an order is given up.
_MOST_SETS: Final = 1000


class Move(NamedTuple):
    """A consumer, what it holds, and the place that it gets."""

    consumer: int
    held: Amounts
    place: Place


class Bounds(Struct, frozen=True):
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


class Plan(Struct, frozen=True):
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


class Steps(Struct):
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
            if further in seen:  # or made by now
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


ORDINARY: Final = frozenset({"VCPU", "PCPU", "MEMORY_MB", "DISK_GB"})
"""What every guest takes; of any other class a provider is a device."""


class Breakage:
    """The judge of places, in the state that a plan has reached."""

    def __init__(self, index: Index, state: State) -> None:
        self._index, self._state = index, state
        names = index.names.class_names
        self._devices = {c for c in index.classes if names.get(c) not in ORDINARY}

    def of(self, place: Place) -> tuple[int, int]:
        """Return how many whole providers a place breaks, and kinds of devices that it blocks.

        A provider is broken of which nothing was used, and then only a part: a group of linked
        devices, a cell. Devices are blocked that are free on or below a provider of the place, and
        that the place does not take.
        """
        broken = sum(
            amount < self._whole[class_id][slot] == self._state.free[class_id][slot]
            for (slot, class_id), amount in place.amounts
        )
        taken = {class_id for (_slot, class_id), _amount in place.amounts}
        blocked = {
            (slot, class_id)
            for slot in {slot for (slot, _class_id), _amount in place.amounts}
            for class_id in self._devices - taken
            if self._free_below[class_id][self._index.end[slot]] > self._free_below[class_id][slot]
        }
        return int(broken), len(blocked)

    @cached_property
    def _whole(self) -> dict[int, IntArray]:
        index = self._index
        return {c: view.by_slot(index.size, view.capacity) for c, view in index.classes.items()}

    @cached_property
    def _free_below(self) -> dict[int, IntArray]:
        """By class, how many slots before each have some free, as at the beginning."""
        return {
            class_id: np.concatenate(([0], np.cumsum(self._state.base[class_id] > 0)))
            for class_id in self._devices
        }
