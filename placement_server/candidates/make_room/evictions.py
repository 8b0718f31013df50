"""Evictions: fewest consumers of which to free the providers of a place that lacks something."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import nsmallest
from operator import itemgetter
from typing import Final, NamedTuple

import numpy as np

from placement_server.candidates.limits import sizes
from placement_server.candidates.limits.memory import Account
from placement_server.candidates.make_room.covers import Covers
from placement_server.candidates.make_room.places import Place, Places, Spot
from placement_server.candidates.make_room.state import Free, State, shortage

# Of evictions of the same shapes these are kept, those of the least memory.
_MOST: Final = 5000
_SIZE: Final = 2 * sizes.ENTRY
# Places between two looks at the clock.
_BETWEEN_TICKS: Final = 64

Shapes = tuple[int, ...]
Option = tuple[int, Place, tuple[int, ...]]
"""An eviction with its place."""


class Eviction(NamedTuple):
    """Consumers without which a place lacks nothing.

    :ivar memory: what they hold of it.
    :ivar consumers: () stands for those of no less memory that are not kept.
    """

    memory: int
    spot: Spot
    consumers: tuple[int, ...]


by_memory: Callable[[Eviction | Option], int] = itemgetter(0)


class Evictions:
    """Evictions for the places of one query, by the shapes of those who leave.

    :param tick: called now and then; may raise.
    """

    def __init__(
        self,
        places: Places,
        covers: Covers,
        state: State,
        tick: Callable[[], None],
        account: Account,
    ) -> None:
        self._places = places
        self._holdings = covers.holdings
        self._covers = covers
        self._state = state
        self._tick = tick
        self._account = account
        self._at_first: dict[int, dict[Shapes, list[Eviction]]] = {}

    def of(self, size: int) -> dict[Shapes, list[Eviction]]:
        """Return those of so many consumers, by their shapes, the least memory first.

        In trees that are touched they are as at the beginning; see `in_tree`. Of places with a
        scarce sharing provider they are as now.
        """
        if self._places.is_scarce:
            by_shapes = self._all(size, self._state.free)
            # another state has others
            self._drop(by_shapes)
            return by_shapes
        if size not in self._at_first:
            self._at_first[size] = self._all(size, self._state.base)
        return self._at_first[size]

    def shapes(self, size: int) -> set[int]:
        """Return the shapes of those who leave with so many consumers."""
        return set().union(*self.of(size))

    def in_tree(self, root: int, size: int) -> Iterator[Option]:
        """Yield those for the places of one tree, as it is now, in any order."""
        for place in self._places.in_tree(root):
            short = shortage(place.amounts, self._state.free)
            for consumers in self._covers.of(short, size) if short else ():
                yield self._holdings.memory_of(consumers), place, consumers

    def _all(self, size: int, free: Free) -> dict[Shapes, list[Eviction]]:
        by_shapes: dict[Shapes, list[Eviction]] = {}
        try:
            self._add_all(size, free, by_shapes)
        except BaseException:
            self._drop(by_shapes)
            raise
        return by_shapes

    def _drop(self, by_shapes: dict[Shapes, list[Eviction]]) -> None:
        self._account.give(sum(map(len, by_shapes.values())) * _SIZE)

    def _add_all(self, size: int, free: Free, by_shapes: dict[Shapes, list[Eviction]]) -> None:
        done = self._add_single(free, by_shapes) if size == 1 else set()
        for number, group in enumerate(self._places.groups):
            for placement in range(len(group.placements)):
                if (number, placement) in done:
                    continue
                lacks = [
                    (class_id, group.slots(position).tolist(), short.tolist())
                    for class_id, position, short in group.shortages(placement, free)
                ]
                for tree in range(len(group.roots)):
                    if tree % _BETWEEN_TICKS == 0:
                        self._tick()
                    short = {(s[tree], c): lack[tree] for c, s, lack in lacks if lack[tree] > 0}
                    for consumers in self._covers.of(short, size) if short else ():
                        self._add(by_shapes, Spot(number, tree, placement), consumers)
        for evictions in by_shapes.values():
            self._keep(evictions)

    def _keep(self, evictions: list[Eviction]) -> None:
        """Keep those of the least memory, and mark where the others would begin."""
        if len(evictions) > _MOST:
            self._account.give((len(evictions) - _MOST) * _SIZE)
            evictions[:] = nsmallest(_MOST, evictions, key=by_memory)
            evictions.append(Eviction(evictions[-1].memory, evictions[-1].spot, ()))

    def _add(
        self, by_shapes: dict[Shapes, list[Eviction]], spot: Spot, consumers: tuple[int, ...]
    ) -> None:
        shapes = tuple(sorted(map(self._holdings.shape, consumers)))
        evictions = by_shapes.setdefault(shapes, [])
        self._account.take(_SIZE)
        evictions.append(Eviction(self._holdings.memory_of(consumers), spot, consumers))
        if len(evictions) > 4 * _MOST:
            self._keep(evictions)

    def _add_single(
        self, free: Free, by_shapes: dict[Shapes, list[Eviction]]
    ) -> set[tuple[int, int]]:
        """Add those of one consumer of the tree, for all trees that are alike at once.

        :returns: groups and placements for which this finds all of them.
        """
        done = set[tuple[int, int]]()
        holdings = self._holdings
        place_in_tree = holdings.slot - holdings.tree[holdings.consumer]
        movable = np.flatnonzero(holdings.tree >= 0)
        for number, group in enumerate(self._places.groups):
            tree_at = np.full(holdings.index.size, -1, np.int64)
            tree_at[group.roots] = np.arange(len(group.roots))
            tree_of = np.full(len(holdings.tree), -1, np.int64)
            tree_of[movable] = tree_at[holdings.tree[movable]]
            members = np.flatnonzero(tree_of >= 0)
            for placement in range(len(group.placements)):
                self._tick()
                shortages = list(group.shortages(placement, free))
                if any(
                    (holdings.is_pool[group.slots(at)] & (short > 0)).any()
                    for _class_id, at, short in shortages
                ):
                    continue
                done.add((number, placement))
                is_short = np.zeros(len(group.roots), bool)
                covers = np.ones(len(members), bool)
                for class_id, position, short in shortages:
                    if (short > 0).any():
                        is_short |= short > 0
                        rows = (holdings.class_id == class_id) & (place_in_tree == position)
                        held = np.zeros(len(holdings.tree), np.int64)
                        held[holdings.consumer[rows]] = holdings.amount[rows]
                        covers &= held[members] >= short[tree_of[members]]
                covers &= is_short[tree_of[members]]
                seen = set[tuple[int, tuple[int, int]]]()
                for consumer in members[covers].tolist():
                    key = int(tree_of[consumer]), holdings.identity(consumer)
                    if key not in seen and consumer not in self._covers.out:
                        seen.add(key)
                        self._add(by_shapes, Spot(number, key[0], placement), (consumer,))
        return done
