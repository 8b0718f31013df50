"""Zones of a tree for a same_subtree rule: the subtrees that whole claims are in.

A provider is a *top* when it may serve one of the items and each of the others has a provider in
its subtree. A claim has its providers below one top, so it is in exactly one of the subtrees of the
uppermost tops, its zone, and the zones of a tree take claims independently::

    root ── cell0 ── gpu, gpu      the items _C on cells and _G on GPUs: two zones, cell0 and cell1
         └─ cell1 ── gpu
"""

from __future__ import annotations

import numpy as np

from placement_server.candidates.bounds.memory import Account
from placement_server.candidates.capacity.bounds import (
    Bounds,
    Counts,
    are_isolated,
    fewest_claims,
    least,
    most_claims,
)
from placement_server.candidates.capacity.parts import Part
from placement_server.candidates.capacity.rows import Groups, Rows
from placement_server.candidates.index.arrays import BoolArray, IntArray
from placement_server.candidates.query.compiled import Plan


def count_part(
    plan: Plan, part: Part, rows: Rows, counts: Counts, groups: Groups, account: Account
) -> Bounds:
    """Return how many claims each tree takes, as far as the items of a part are concerned.

    :param groups: the rows by tree.
    """
    if part.subtree is None:
        bounds = least(plan, part.components, rows, counts, groups)
        if part.is_loose:
            bounds.low = np.zeros_like(bounds.low)
        return bounds
    own = ~rows.foreign
    some = np.logical_or.reduce([counts[item] > 0 for item in part.items])
    is_shared = groups.total(some & rows.foreign) > 0
    kept_counts = [count[own] for count in counts]
    bounds = _Zones(plan, part, rows.some(own), kept_counts, groups.count, account).bounds()
    if is_shared.any():
        # Where sharing providers take part, the rule is not followed.
        loose = least(plan, part.components, rows, counts, groups)
        bounds.low = np.where(is_shared, 0, bounds.low)
        bounds.high = np.where(is_shared, loose.high, bounds.high)
    return bounds


class _Zones:
    def __init__(
        self, plan: Plan, part: Part, rows: Rows, counts: Counts, trees: int, account: Account
    ) -> None:
        self.plan = plan
        self.part = part
        self.trees = trees
        account.take(8 * rows.index.size)
        some = np.logical_or.reduce([counts[item] > 0 for item in part.items])
        candidates = some & self._is_top(rows, counts)
        end = rows.index.end
        tops = np.unique(rows.slot[candidates])
        before = np.concatenate((np.zeros(1, np.int64), np.maximum.accumulate(end[tops])))[:-1]
        self.tops = tops
        self.zones = tops[tops >= before]
        zone = np.searchsorted(self.zones, rows.slot, side="right") - 1
        inside = some & (zone >= 0)
        inside[inside] = rows.slot[inside] < end[self.zones[zone[inside]]]
        self.rows = rows.some(inside)
        self.counts = [count[inside] for count in counts]
        self.zone = zone[inside]
        self.groups = Groups(self.zone, len(self.zones))
        account.give(8 * rows.index.size)

    def _is_top(self, rows: Rows, counts: Counts) -> BoolArray:
        """Return which rows have a provider for each item at or below them."""
        index = rows.index
        is_top = np.ones(len(rows), dtype=bool)
        for item in self.part.items:
            serving = np.zeros(index.size + 1, dtype=np.int64)
            serving[1:][rows.slot[counts[item] > 0]] = 1
            before = np.cumsum(serving)
            is_top &= before[index.end[rows.slot]] > before[rows.slot]
        return is_top

    def bounds(self) -> Bounds:
        if not len(self.zones):
            return Bounds(np.zeros(self.trees, np.int64), np.zeros(self.trees, np.int64))
        at_top = {
            item: (self.counts[item] > 0) & (self.rows.slot == self.zones[self.zone])
            for item in self.part.items
        }
        top_items = {item: self.groups.total(rows) > 0 for item, rows in at_top.items()}
        is_kept = np.zeros(len(self.zones), dtype=bool)
        for item in self.part.items:
            # An item that can only be at the top keeps every claim of the zone below it.
            is_kept |= top_items[item] & (self.groups.total(self.counts[item] > 0) == 1)
        tops_inside = np.bincount(
            np.searchsorted(self.zones, self.tops, side="right") - 1, minlength=len(self.zones)
        )
        items_at_top = sum(rows.astype(np.int64) for rows in top_items.values())
        is_single = ~is_kept & (tops_inside == 1) & (items_at_top == 1)
        counts = list(self.counts)
        for item in self.part.items:
            counts[item] = self._at_top_only(is_single & top_items[item], counts[item])
        bounds = self._least(counts)
        unsure = ~is_kept & ~is_single
        if unsure.any():
            bounds.low = np.where(unsure, self._lowest(top_items, unsure), bounds.low)
        tree = Groups(self._trees_of_zones(), self.trees)
        if self.part.copies:
            return self._count_copies(bounds, tree)
        return Bounds(tree.total(bounds.low), tree.total(bounds.high))

    def _count_copies(self, bounds: Bounds, tree: Groups) -> Bounds:
        """Return how many claims fit that need a place for each copy.

        A zone that can hold a copy, and is not full after as many as ``low``, is a place for one
        more; several in one zone may be in each other's way, so only one is counted on.
        """
        needed_count = len(self.part.copies)
        one = np.ones(len(self.zones), np.int64)
        most = np.where(self._holds_one_copy(), 1, needed_count)
        return Bounds(
            fewest_claims(tree, bounds.low, needed_count, one, most),
            most_claims(tree, bounds.high, needed_count, most),
        )

    def _holds_one_copy(self) -> BoolArray:
        """Return in which zones two copies would need the same provider, and may not share it."""
        first, second = self.part.copies[:2]
        holds_one = np.zeros(len(self.zones), dtype=bool)
        for item, other in zip(first, second, strict=True):
            if are_isolated(self.plan, item, other):
                holds_one |= self.groups.total(self.counts[item] > 0) == 1
        return holds_one

    def _lowest(self, top_items: dict[int, BoolArray], unsure: BoolArray) -> IntArray:
        """Return how many claims fit that have one and the same item at the top: some of them."""
        low = np.zeros(len(self.zones), np.int64)
        for item, can_be in top_items.items():
            counts = list(self.counts)
            counts[item] = self._at_top_only(unsure, counts[item])
            low = np.maximum(low, np.where(unsure & can_be, self._least(counts).low, 0))
        return low

    def _at_top_only(self, zones: BoolArray, counts: IntArray) -> IntArray:
        elsewhere = self.rows.slot != self.zones[self.zone]
        return np.where(zones[self.zone] & elsewhere, 0, counts)

    def _least(self, counts: Counts) -> Bounds:
        return least(self.plan, self.part.components, self.rows, counts, self.groups)

    def _trees_of_zones(self) -> IntArray:
        tree = np.zeros(len(self.zones), dtype=np.int64)
        tree[self.zone] = self.rows.tree
        return tree
