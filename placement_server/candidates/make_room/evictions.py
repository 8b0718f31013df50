"""Evictions: fewest consumers of which to free the providers of a place that lacks something.

They are *covers* of what is lacked: without any one of them the others do not hold enough of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from heapq import merge, nsmallest
from itertools import islice, pairwise
from operator import itemgetter
from typing import Final, NamedTuple

import numpy as np
from msgspec import Struct

from placement_server.candidates import sizes
from placement_server.candidates.index.arrays import IntArray
from placement_server.candidates.limits import Account
from placement_server.candidates.make_room.holdings import Holdings, Key
from placement_server.candidates.make_room.places import (
    AlikeTrees,
    Free,
    Place,
    Places,
    Spot,
    State,
    shortage,
)

# Consumers that are tried between two looks at the clock.
_BETWEEN_LOOKS: Final = 64


class Covers(Struct):
    """The covers by consumers that may move and have not left.

    :ivar look: called now and then, as there may be too many covers to find them all; may raise.
    :ivar out: the consumers that have left.
    """

    holdings: Holdings
    look: Callable[[], None]
    account: Account
    out: set[int] = set()
    _out_at_first: frozenset[int] = frozenset()
    _tried_count: int = 0

    def let_out(self, consumers: Iterable[int]) -> None:
        """Let consumers leave for good."""
        self.out.update(consumers)
        self._out_at_first = frozenset(self.out)

    @contextmanager
    def all_at_first(self) -> Iterator[None]:
        """Count those who left later as being there within a block."""
        out, self.out = self.out, set(self._out_at_first)
        try:
            yield
        finally:
            self.out = out

    def of(self, short: dict[Key, int], size: int) -> Iterator[tuple[int, ...]]:
        """Yield the covers of so many consumers; of those that are alike the first."""
        seen = set[tuple[int, ...]]()
        entry = sizes.ENTRY + sizes.key(size)
        try:
            for consumers in self._extended((), short, size):
                cover = tuple(sorted(consumers))
                if len(cover) == size and cover not in seen:
                    self.account.take(entry)
                    seen.add(cover)
                    if size == 1 or self._is_minimal(cover, short):
                        yield cover
        finally:
            self.account.give(len(seen) * entry)

    def _is_minimal(self, cover: tuple[int, ...], short: dict[Key, int]) -> bool:
        amounts = [[self.holdings.holders(key).get(c, 0) for c in cover] for key in short]
        lacks = list(zip(amounts, map(sum, amounts), short.values(), strict=True))
        return all(
            any(of[at] and total - of[at] < lack for of, total, lack in lacks)
            for at in range(len(cover))
        )

    def _extended(
        self, chosen: tuple[int, ...], short: dict[Key, int], most: int
    ) -> Iterator[tuple[int, ...]]:
        if not short:
            yield chosen
            return
        left = most - len(chosen)
        if not left:
            return
        holders = self.holdings.holders
        key, lack = next(iter(short.items()))
        tried = set[int]()
        for consumer, amount in holders(key).items():
            if amount * left < lack:
                return
            self._tried_count += 1
            if self._tried_count % _BETWEEN_LOOKS == 0:
                self.look()
            if consumer in chosen or consumer in self.out:
                continue
            identity = int(self.holdings.identities[consumer])
            if identity in tried:
                continue
            tried.add(identity)
            rest = {
                k: n for k, lack in short.items() if (n := lack - holders(k).get(consumer, 0)) > 0
            }
            yield from self._extended((*chosen, consumer), rest, most)


# Of evictions of the same shapes these are tried, those of the least memory.
_MOST: Final = 5000
_SIZE: Final = 2 * sizes.ENTRY
# Sets of so many consumers are looked at in all trees that are alike at once.
_FEW: Final = 2
# Not where a tree has more consumers than these.
_MANY: Final = 1000
# About twice the pairs of consumers that are looked at together.
_CHUNK: Final = 500_000
# Rows that are read at once.
_BLOCK: Final = 16
# Places between two looks at the clock.
_BETWEEN_TICKS: Final = 64

Shapes = tuple[int, ...]
Option = tuple[int, Place, tuple[int, ...]]
"""An eviction with its place."""


class Eviction(NamedTuple):
    """Consumers without which a place lacks nothing.

    :ivar memory: what they hold of it.
    :ivar consumers: () stands for those of no less memory that are not tried.
    """

    memory: int
    spot: Spot
    consumers: tuple[int, ...]


by_memory: Callable[[Eviction | Option], int] = itemgetter(0)


class _Rows(NamedTuple):
    """Evictions in arrays, for one placement in trees that are alike, the least memory first."""

    group: int
    placement: int
    memory: IntArray
    trees: IntArray
    members: IntArray

    def __iter__(self) -> Iterator[Eviction]:  # type: ignore[override]
        """Yield them one by one."""
        # most are never looked at
        for start in range(0, len(self.trees), _BLOCK):
            rows = slice(start, start + _BLOCK)
            consumers = zip(*(of[rows].tolist() for of in self.members), strict=True)
            columns = self.memory[rows].tolist(), self.trees[rows].tolist(), consumers
            for memory, tree, leaving in zip(*columns, strict=True):
                yield Eviction(memory, Spot(self.group, tree, self.placement), leaving)


class EvictionList(Struct):
    """Evictions of consumers of the same shapes, in iteration the least memory first."""

    rows: list[_Rows] = []
    single: list[Eviction] = []

    def __iter__(self) -> Iterator[Eviction]:
        self.single.sort(key=by_memory)
        parts = [iter(rows) for rows in self.rows]
        evictions = merge(*parts, self.single, key=by_memory)
        yield from islice(evictions, _MOST)
        for eviction in islice(evictions, 1):
            yield eviction._replace(consumers=())


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
        self._at_first: dict[int, dict[Shapes, EvictionList]] = {}
        self._by_shapes: dict[Shapes, EvictionList] = {}

    def of(self, size: int) -> dict[Shapes, EvictionList]:
        """Return those of so many consumers, by their shapes.

        In trees that are touched they are as at the beginning; see `in_tree`. Of places with a
        scarce sharing provider they are as now.
        """
        if self._places.is_scarce:
            return self._all(size, self._state.free, is_kept=False)
        if size not in self._at_first:
            # Who has left is in trees that are touched now, and untouched later.
            with self._covers.all_at_first():
                self._at_first[size] = self._all(size, self._state.base, is_kept=True)
        return self._at_first[size]

    def in_tree(self, root: int, size: int) -> Iterator[Option]:
        """Yield those for the places of one tree, as it is now, in any order."""
        for place in self._places.in_tree(root):
            short = shortage(place.amounts, self._state.free)
            for consumers in self._covers.of(short, size) if short else ():
                yield self._holdings.memory_of(consumers), place, consumers

    def _all(self, size: int, free: Free, is_kept: bool) -> dict[Shapes, EvictionList]:
        """Return all of them.

        :param is_kept: False where another state has others.
        """
        self._by_shapes, held_bytes, is_whole = {}, self._account.held_bytes, False
        try:
            for number, group in enumerate(self._places.groups):
                together = self._together(number, size)
                for sets in self._sets(group, size) if together else ():
                    for placement in together:
                        self._add_sets(
                            number, placement, self._short(number, placement, free), sets
                        )
                for placement in range(len(group.placements)):
                    if placement not in together:
                        self._add_one_by_one(number, placement, free, size)
            is_whole = True
            return self._by_shapes
        finally:
            if not (is_kept and is_whole):
                self._account.give(self._account.held_bytes - held_bytes)

    def _together(self, number: int, size: int) -> list[int]:
        """Return the placements for which all trees of a group are looked at together."""
        group, is_pool = self._places.groups[number], self._holdings.is_pool
        if size > _FEW or self._holdings.most_in_tree > _MANY:
            return []
        return [
            placement
            for placement, needs in enumerate(group.needs)
            if not any(is_pool[group.slots(position)].any() for _class, position in needs)
        ]

    def _short(self, number: int, placement: int, free: Free) -> list[tuple[int, int, IntArray]]:
        """Return class, position, and by tree what is lacked, where a tree lacks anything."""
        self._tick()
        return [
            entry
            for entry in self._places.groups[number].shortages(placement, free)
            if (entry[2] > 0).any()
        ]

    def _add_one_by_one(self, number: int, placement: int, free: Free, size: int) -> None:
        group = self._places.groups[number]
        lacks = [
            (class_id, group.slots(position).tolist(), short.tolist())
            for class_id, position, short in self._short(number, placement, free)
        ]
        for tree in range(len(group.roots)) if lacks else ():
            if tree % _BETWEEN_TICKS == 0:
                self._tick()
            short = {(s[tree], c): lack[tree] for c, s, lack in lacks if lack[tree] > 0}
            for consumers in self._covers.of(short, size) if short else ():
                self._add(Spot(number, tree, placement), consumers)

    def _add(self, spot: Spot, consumers: tuple[int, ...]) -> None:
        shapes = tuple(sorted(map(self._holdings.shape, consumers)))
        single = self._by_shapes.setdefault(shapes, EvictionList()).single
        self._account.take(_SIZE)
        single.append(Eviction(self._holdings.memory_of(consumers), spot, consumers))
        if len(single) > 4 * _MOST:
            self._account.give((len(single) - _MOST - 1) * _SIZE)
            single[:] = nsmallest(_MOST + 1, single, key=by_memory)

    def _sets(self, group: AlikeTrees, size: int) -> Iterator[_Sets]:
        """Yield the sets of one or two consumers of a tree; of those that are alike the first."""
        holdings = self._holdings
        tree_at = np.full(holdings.index.size, -1, np.int64)
        tree_at[group.roots] = np.arange(len(group.roots))
        members = np.flatnonzero(holdings.tree >= 0)
        members = members[tree_at[holdings.tree[members]] >= 0]
        members = members[~np.isin(members, list(self._covers.out))]
        trees, alike = tree_at[holdings.tree[members]], holdings.identities[members]
        order = np.lexsort((alike, trees))
        members, trees, alike = members[order], trees[order], alike[order]
        ordinal = np.zeros(len(members), np.int64)
        for back in range(1, size + 1):
            same = (alike[back:] == alike[:-back]) & (trees[back:] == trees[:-back])
            ordinal[back:] += same
        if size == 1:
            first = ordinal == 0
            yield _Sets(trees[first], (members[first],))
            return
        # two that are alike, and the first of them beside others
        kept = ordinal < size
        members, trees, alike, ordinal = (c[kept] for c in (members, trees, alike, ordinal))
        counts = np.bincount(trees, minlength=1)
        chunk_of = (np.cumsum(counts * counts) // _CHUNK)[trees]
        for chunk in np.unique(chunk_of).tolist():
            begin, end = np.searchsorted(chunk_of, (chunk, chunk + 1)).tolist()
            in_tree = int(counts[trees[begin:end]].max())
            lefts, rights = [], []
            for apart in range(1, min(in_tree, end - begin)):
                self._tick()
                left = np.arange(begin, end - apart)
                right = left + apart
                is_set = (trees[left] == trees[right]) & (ordinal[left] == 0)
                is_set &= (ordinal[right] == 0) | (alike[left] == alike[right])
                lefts.append(left[is_set])
                rights.append(right[is_set])
            if lefts:
                left, right = np.concatenate(lefts), np.concatenate(rights)
                yield _Sets(trees[left], (members[left], members[right]))

    def _add_sets(
        self,
        number: int,
        placement: int,
        shortages: Sequence[tuple[int, int, IntArray]],
        sets: _Sets,
    ) -> None:
        """Add the sets that are evictions, for all trees that are alike at once."""
        holdings, (trees, members) = self._holdings, sets
        is_cover, lacks = np.ones(len(trees), bool), np.zeros(len(trees), bool)
        suffices = np.ones((len(members), len(trees)), bool)
        for class_id, position, short in shortages:
            held, lack = holdings.held_at(class_id, position), short[trees]
            amounts = np.stack([held[of] for of in members])
            is_cover &= amounts.sum(axis=0) >= lack
            lacks |= lack > 0
            suffices &= amounts >= lack
        if len(members) > 1:
            is_cover &= ~suffices.any(axis=0)
        at = np.flatnonzero(is_cover & lacks)
        if not len(at):
            return
        leaving = [of[at] for of in members]
        shapes = np.sort(np.stack([holdings.shapes_of(of) for of in leaving]), axis=0)
        memory = np.stack([holdings.memory[of] for of in leaving]).sum(axis=0)
        order = np.lexsort((memory, *shapes))
        shapes, memory, at = shapes[:, order], memory[order], at[order]
        starts = np.flatnonzero((shapes[:, 1:] != shapes[:, :-1]).any(axis=0)) + 1
        for start, end in pairwise((0, *starts.tolist(), len(at))):
            # one more than are tried shows that there are more
            chosen = slice(start, min(end, start + _MOST + 1))
            self._account.take(_SIZE + (chosen.stop - start) * 8 * (2 + len(members)))
            of_shapes = tuple(shapes[:, start].tolist())
            evictions = self._by_shapes.setdefault(of_shapes, EvictionList())
            columns = trees[at[chosen]], np.sort([of[at[chosen]] for of in members], axis=0)
            evictions.rows.append(_Rows(number, placement, memory[chosen], *columns))


class _Sets(NamedTuple):
    """Sets of so many consumers of one tree each.

    :ivar trees: the position of its tree, by set.
    :ivar members: by set, the first of them, the second.
    """

    trees: IntArray
    members: tuple[IntArray, ...]
