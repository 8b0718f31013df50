"""Trees that use the same sharing providers, *pools*: what one takes, the others lack.

Trees that are connected by pools are a *cluster*. The most that a cluster takes is bounded by the
sum over its trees and by what there is of each part of the request, each pool counted once. The
fewest: either a tree is full of its own account, or pools have run dry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from placement_server.candidates.bounds.memory import Account
from placement_server.candidates.capacity.bounds import Bounds, Counts, least
from placement_server.candidates.capacity.parts import Part
from placement_server.candidates.capacity.rows import MOST, Groups, Rows
from placement_server.candidates.capacity.zones import count_part
from placement_server.candidates.index.arrays import BoolArray, IntArray
from placement_server.candidates.query.compiled import Plan


def pooled_rows(rows: Rows) -> BoolArray:
    """Return which rows are of pools, also where a pool is in the tree itself."""
    is_pool = np.zeros(rows.index.size, dtype=bool)
    is_pool[rows.slot[rows.foreign]] = True
    is_pooled: BoolArray = is_pool[rows.slot]
    return is_pooled


@dataclass(slots=True)
class _Counted:
    """A part of the request in numbers, by tree.

    :ivar alone: with the pools, as if no other tree used them.
    :ivar own: without the pools.
    :ivar uses_pools: whether any pool serves it.
    """

    part: Part
    alone: Bounds
    own: Bounds
    uses_pools: bool


class Clusters:
    """The clusters of some trees, each of which has a pool.

    :param rows: of these trees, numbered from 0.
    :param unsure: by tree, whether only the most holds.
    :ivar alone: what each tree takes when no other takes anything.
    :ivar of_tree: the number of the cluster of each tree.
    :ivar total: the bounds of each cluster.
    :ivar scarce: by cluster, the first item of the part that its pools run out of; -1 if none.
    """

    def __init__(
        self,
        plan: Plan,
        parts: Sequence[Part],
        rows: Rows,
        counts: Counts,
        unsure: BoolArray,
        account: Account,
    ) -> None:
        self.plan = plan
        self.rows = rows
        self.counts = counts
        self.unsure = unsure
        self.trees = len(unsure)
        self.account = account
        self.is_pooled = pooled_rows(rows)
        self.parts = [self._count(part) for part in parts]
        self.alone = self._least_of([counted_part.alone for counted_part in self.parts])
        self.of_tree, self.count = self._connect()
        low = self._low()
        high, self.scarce = self._high()
        self.total = Bounds(low, high)

    def _count(self, part: Part) -> _Counted:
        groups = Groups(self.rows.tree, self.trees)
        alone = count_part(self.plan, part, self.rows, self.counts, groups, self.account)
        uses_pools = any((self.counts[item][self.is_pooled] > 0).any() for item in part.items)
        if not uses_pools:
            return _Counted(part, alone, alone, uses_pools)
        rows = self.rows.some(~self.is_pooled)
        counts = [count[~self.is_pooled] for count in self.counts]
        groups = Groups(rows.tree, self.trees)
        own = count_part(self.plan, part, rows, counts, groups, self.account)
        return _Counted(part, alone, own, uses_pools)

    def _least_of(self, every: Sequence[Bounds]) -> Bounds:
        bounds = Bounds.none(self.trees)
        for pool in every:
            bounds.limit(pool)
        bounds.low = np.where(self.unsure, 0, bounds.low)
        return bounds

    def _connect(self) -> tuple[IntArray, int]:
        """Return the cluster of each tree, and how many there are."""
        trees = self.rows.tree[self.is_pooled]
        pools = np.unique(self.rows.slot[self.is_pooled], return_inverse=True)[1]
        number = np.arange(self.trees)
        while True:
            # Each tree takes the lowest number of those that it shares a pool with.
            of_pool = np.full(int(pools.max()) + 1, self.trees)
            np.minimum.at(of_pool, pools, number[trees])
            lower = number.copy()
            np.minimum.at(lower, trees, of_pool[pools])
            if (lower == number).all():
                break
            number = lower
        clusters, of_tree = np.unique(number, return_inverse=True)
        return of_tree, len(clusters)

    def _high(self) -> tuple[IntArray, IntArray]:
        clusters = Groups(self.of_tree, self.count)
        high = clusters.total(self.alone.high)
        scarce = np.full(self.count, -1, np.int64)
        for counted_part in self.parts:
            if not counted_part.uses_pools:
                continue
            most = self._together(counted_part.part)
            if len(counted_part.part.items) == 1:
                others = [other.alone for other in self.parts if other is not counted_part]
                limit, own = self._least_of(others).high, counted_part.own.high
                missing_amount = clusters.total(np.maximum(limit - own, 0))
                of_pools = self._together(counted_part.part, only_pools=True)
                spread = clusters.total(np.minimum(limit, own)) + np.minimum(
                    of_pools, missing_amount
                )
                most = np.minimum(most, spread)
            scarce = np.where(most < high, counted_part.part.items[0], scarce)
            high = np.minimum(high, most)
        return high, scarce

    def _together(self, part: Part, *, only_pools: bool = False) -> IntArray:
        """Return the most that all providers of each cluster take of a part, each counted once."""
        cluster = self.of_tree[self.rows.tree]
        order = np.lexsort((self.rows.slot, cluster))
        if only_pools:
            order = order[self.is_pooled[order]]
        slots = self.rows.slot[order]
        starts = np.flatnonzero(np.concatenate(((True,), slots[1:] != slots[:-1])))
        counts = list(self.counts)
        for item in part.items:
            counts[item] = np.maximum.reduceat(self.counts[item][order], starts)
        first = order[starts]
        groups = Groups(cluster[first], self.count)
        return least(self.plan, part.components, self.rows.some(first), counts, groups).high

    def _low(self) -> IntArray:
        own = self._least_of([counted_part.own for counted_part in self.parts])
        low = Groups(self.of_tree, self.count).total(own.low)
        sets, first = self._sets_of_pools()
        full = self._least_of([part.alone for part in self.parts if not part.uses_pools]).low
        of_sets = Groups(sets, len(first))
        lowest = np.minimum(of_sets.total(full), self._dry(sets, first))
        lowest = np.where(of_sets.total(self.unsure) > 0, 0, lowest)
        np.maximum.at(low, self.of_tree[first], lowest)
        is_one_set = np.bincount(self.of_tree[first], minlength=self.count) == 1
        for counted_part in self.parts:
            if counted_part.uses_pools and len(counted_part.part.items) == 1:
                low = np.maximum(low, self._all_taken(counted_part, is_one_set))
        return low

    def _all_taken(self, counted_part: _Counted, is_one_set: BoolArray) -> IntArray:
        """Return the fewest claims of each cluster for one item of which pools have some.

        In the end some trees F are full of their own account, with m claims each or more. All
        others have used up what they have of the item, own(t), and what their pools have, S. So
        there were sum(own, not F) + max(S, sum(m, F)) claims or more, for whichever F makes that
        least, or sum(m, all). Trees of F may leave of their own at the most what is worth it to
        fill them: a knapsack of the size S, rounded down for the bound.

        :param is_one_set: by cluster, whether all trees have the same pools; if they have not,
            the pools are all used up only where nothing else fills a tree.
        """
        clusters = Groups(self.of_tree, self.count)
        others = [other.own for other in self.parts if other is not counted_part]
        limit = self._least_of(others).low
        own = np.where(self.unsure, 0, counted_part.own.low)
        in_pools = self._together(counted_part.part, only_pools=True)
        by_others = clusters.total(limit)
        is_full = own >= limit
        filled_amount = clusters.total(np.where(is_full, limit, 0))
        value, size = np.where(is_full, 0, own), np.where(is_full, 0, limit)
        room = np.maximum(in_pools - filled_amount, 0)
        used_up = clusters.total(value) + np.maximum(in_pools, filled_amount)
        low: IntArray = np.minimum(by_others, used_up - _knapsack(clusters, value, size, room))
        is_unlimited = clusters.total(limit < MOST) == 0
        return np.where(is_one_set | is_unlimited, low, 0)

    def _sets_of_pools(self) -> tuple[IntArray, IntArray]:
        """Return the number of the set of pools that each tree has, and a tree of each set."""
        edges = Groups(self.rows.tree[self.is_pooled], self.trees).edges.tolist()
        slots = self.rows.slot[self.is_pooled]
        self.account.take(slots.nbytes)
        texts = [slots[start:stop].tobytes() for start, stop in pairwise(edges)]
        number = {text: at for at, text in enumerate(dict.fromkeys(texts))}
        sets = np.array([number[text] for text in texts], dtype=np.int64)
        return sets, np.unique(sets, return_index=True)[1]

    def _dry(self, sets: IntArray, first: IntArray) -> IntArray:
        """Return after how many claims at the least the pools of a set have none left of a part."""
        at = np.flatnonzero(self.is_pooled)
        trees = self.rows.tree[at]
        edges = Groups(trees, self.trees).edges
        is_first = np.zeros(self.trees, dtype=bool)
        is_first[first] = True
        chosen_rows = at[is_first[trees]]
        rows = self.rows.some(chosen_rows)
        groups = Groups(sets[rows.tree], len(first))
        # Trees of a set have as many pools, in the same order.
        place = groups.edges[sets[trees]] + np.arange(len(at)) - edges[:-1][trees]
        dry = np.full(len(first), MOST, np.int64)
        for counted_part in self.parts:
            if not counted_part.uses_pools:
                continue
            if counted_part.part.subtree or counted_part.part.is_loose:
                return np.zeros(len(first), np.int64)
            counts = list(self.counts)
            for item in counted_part.part.items:
                fewest = np.full(len(chosen_rows), MOST, np.int64)
                np.minimum.at(fewest, place, self.counts[item][at])
                counts[item] = fewest
            bounds = least(self.plan, counted_part.part.components, rows, counts, groups)
            dry = np.minimum(dry, bounds.low)
        return dry


def _knapsack(groups: Groups, values: IntArray, sizes: IntArray, room: IntArray) -> IntArray:
    """Return by group the most value that fits into its room where things can be divided."""
    density = values / np.maximum(sizes, 1)
    order = np.lexsort((-density, groups.key))
    size = sizes[order]
    before = np.cumsum(size) - size
    key = groups.key[order]
    taken_units = np.clip(room[key] - (before - before[groups.edges[:-1][key]]), 0, size)
    # Floating point may err by less than this; more value means a lower bound.
    worth = np.where(
        taken_units == size, values[order], np.floor(density[order] * taken_units + 1e-3)
    )
    sums = np.concatenate((np.zeros(1, np.int64), np.cumsum(worth.astype(np.int64))))
    return groups.between_edges(sums)
