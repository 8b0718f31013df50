"""Bounds of how many claims a group of providers takes, for items that compete for them.

In terms of *units*: a provider with 7 VCPU free has 3 units for an item of 2. ``low`` follows from
what must be used up before no claim fits, divided by the most that one claim can use up, so it
holds whatever candidates are chosen. ``high`` follows from what there is, divided by the least that
a claim needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from math import gcd

import numpy as np

from placement_server.candidates.capacity.rows import MOST, Groups, Rows
from placement_server.candidates.index.arrays import BoolArray, IntArray
from placement_server.candidates.query.compiled import Plan

Counts = Sequence[IntArray]

# Bits of a ratio after the point; one of less than 2**40 still fits.
_PRECISION = 20


@dataclass(slots=True)
class Bounds:
    """The fewest and the most claims, by tree or by other groups of rows."""

    low: IntArray
    high: IntArray

    def limit(self, other: Bounds) -> None:
        """Take the smaller ones: a claim needs both."""
        self.low = np.minimum(self.low, other.low)
        self.high = np.minimum(self.high, other.high)

    @classmethod
    def none(cls, count: int) -> Bounds:
        """Return bounds that limit nothing."""
        return cls(np.full(count, MOST, np.int64), np.full(count, MOST, np.int64))


def are_isolated(plan: Plan, first: int, second: int) -> bool:
    """Check whether no provider may serve both items of one claim."""
    items = plan.items[first], plan.items[second]
    by_policy = plan.is_isolated and items[0].is_suffixed and items[1].is_suffixed
    return by_policy or items[0].is_named or items[1].is_named


def least(
    plan: Plan, components: Sequence[Sequence[int]], rows: Rows, counts: Counts, groups: Groups
) -> Bounds:
    """Return the bounds of claims that need each of some components, which take nothing of another.

    :param counts: by item, how many times each row takes it alone.
    """
    bounds = Bounds.none(groups.count)
    for component in components:
        bounds.limit(_Component(plan, component, rows, counts, groups).bounds())
    return bounds


class _Component:
    """Items of which each claim needs one unit each, from the same providers."""

    def __init__(
        self, plan: Plan, items: Sequence[int], rows: Rows, counts: Counts, groups: Groups
    ) -> None:
        self.plan = plan
        self.items = items
        self.rows = rows
        self.counts = counts
        self.groups = groups
        self.amounts: dict[int, list[int]] = {}
        for item in items:
            for class_id, amount in plan.items[item].amounts:
                self.amounts.setdefault(class_id, []).append(amount)

    def bounds(self) -> Bounds:
        if len(self.items) == 1:
            total = np.minimum(self.groups.total(self.counts[self.items[0]]), MOST)
            return Bounds(total, total)
        serving = [self.counts[item] > 0 for item in self.items]
        some = np.logical_or.reduce(serving)
        every = np.logical_and.reduce(serving)
        bounds = Bounds(self._low(every), self._high(serving))
        alone = (self.groups.total(some) == 1) & (self.groups.total(every) == 1)
        if alone.any():
            exact = self.groups.total(np.where(every, self._on_one(), 0))
            bounds.low = np.where(alone, exact, bounds.low)
            bounds.high = np.where(alone, exact, bounds.high)
        return bounds

    @property
    def isolated_items(self) -> list[int]:
        """Those of the items of which no two may be on one provider."""
        isolated_items: list[int] = []
        for item in self.items:
            if all(are_isolated(self.plan, item, other) for other in isolated_items):
                isolated_items.append(item)
        return isolated_items if len(isolated_items) > 1 else []

    def _on_one(self) -> IntArray:
        """Return how many times each row takes all the items together."""
        if self.isolated_items:
            return np.zeros(len(self.rows), np.int64)
        together = np.full(len(self.rows), MOST, np.int64)
        for class_id, amounts in self.amounts.items():
            free, most = self.rows.amounts(class_id)
            if len(amounts) > 1:
                free = np.where(sum(amounts) <= most, free, 0)
            together = np.minimum(together, free // sum(amounts))
        return together

    def _most_of_a_claim(self) -> IntArray:
        """Return how many of the items one claim can put on each row, at the most."""
        every = len(self.items)
        most = np.full(len(self.rows), 1 if len(self.isolated_items) == every else every, np.int64)
        for class_id, amounts in self.amounts.items():
            if len(amounts) == every:
                most = np.minimum(most, self.rows.amounts(class_id)[1] // min(amounts))
        return np.maximum(most, 1)

    def _low(self, every: BoolArray) -> IntArray:
        """Count units for the largest amounts, where all items may be.

        When no claim fits, what is left does not hold one: rows with ``per_claim`` units or more
        count so many towards the items of a claim, others what they have, and the sum is less
        than there are items. That much can be left at the most; the rest was used up, at most a
        unit by each item of a claim.
        """
        needed_count = len(self.items)
        units = np.where(every, np.int64(MOST), 0)
        per_claim = np.full(len(units), 1 if self.isolated_items else needed_count, np.int64)
        for class_id, amounts in self.amounts.items():
            free, most = self.rows.amounts(class_id)
            units = np.minimum(units, free // max(amounts))
            if len(amounts) > 1:
                per_claim = np.minimum(per_claim, np.maximum(most // max(amounts), 1))
        return fewest_claims(self.groups, units, needed_count, per_claim, self._most_of_a_claim())

    def _high(self, serving: Sequence[BoolArray]) -> IntArray:
        high = np.full(self.groups.count, MOST, np.int64)
        for item in self.items:
            high = np.minimum(high, self.groups.total(self.counts[item]))
        for class_id, amounts in self.amounts.items():
            if len(amounts) < 2:
                continue
            asking = [
                serves
                for item, serves in zip(self.items, serving, strict=True)
                if class_id in dict(self.plan.items[item].amounts)
            ]
            step = reduce(gcd, amounts)
            free = np.where(np.logical_or.reduce(asking), self.rows.amounts(class_id)[0], 0)
            high = np.minimum(high, self.groups.total(free // step * step) // sum(amounts))
        high = self._spread(high, self.items, self._most_of_a_claim())
        isolated_items = self.isolated_items
        if isolated_items and len(isolated_items) < len(self.items):
            high = self._spread(high, isolated_items, np.ones(len(self.rows), np.int64))
        return high

    def _spread(self, high: IntArray, items: Sequence[int], most: IntArray) -> IntArray:
        """Lower bounds to as many claims as can be spread: each puts few items on one row."""
        units = np.minimum(sum(self.counts[item] for item in items), np.int64(MOST))
        for class_id, amounts in self.amounts.items():
            if len(amounts) == len(self.items):
                units = np.minimum(units, self.rows.amounts(class_id)[0] // min(amounts))
        return np.minimum(high, most_claims(self.groups, units, len(items), most))


def _largest_that(fits: Callable[[IntArray], BoolArray], high: IntArray) -> IntArray:
    """Return the largest numbers up to some that fit, where all smaller ones fit too; 0 does."""
    low = np.zeros_like(high)
    if fits(high).all():
        return high
    while (low < high).any():
        middle = (low + high + 1) // 2
        good = fits(middle)
        low = np.where(good, middle, low)
        high = np.where(good, high, middle - 1)
    return low


def fewest_claims(
    groups: Groups, units: IntArray, needed_count: int, per_claim: IntArray, most: IntArray
) -> IntArray:
    """Return after how many claims at the least no other fits, by group.

    :param units: what each row has.
    :param needed_count: units of a claim, wherever they are.
    :param per_claim: so many units of a row are certain to serve one claim, if it has them.
    :param most: the most units of a row that one claim uses up.
    """
    used_up = groups.total(units) - _most_left(
        groups, units, np.minimum(units, per_claim), needed_count
    )
    by_sum = -(-used_up // needed_count)
    # Fewer rows than a claim has units can have something left.
    low: IntArray = np.maximum(by_sum, _largest(groups, -(-units // most), needed_count))
    return np.minimum(low, MOST)


def most_claims(groups: Groups, units: IntArray, needed_count: int, most: IntArray) -> IntArray:
    """Return the most claims that fit, by group; the parameters as for :func:`fewest_claims`."""

    def fits(claims: IntArray) -> BoolArray:
        placed_units = np.minimum(units, most * claims[groups.key])
        return groups.total(placed_units) >= needed_count * claims

    return _largest_that(fits, np.minimum(groups.total(units) // needed_count, MOST))


def _most_left(groups: Groups, units: IntArray, costs: IntArray, needed_count: int) -> IntArray:
    """Return the most units that rows can have left, within costs of less than a claim."""
    worth = (units << _PRECISION) // np.maximum(costs, 1)
    order = groups.descending(worth)
    cost = costs[order]
    before = np.cumsum(cost) - cost
    spent_cost = before - before[groups.edges[:-1][groups.key[order]]]
    taken_items = np.clip(needed_count - 1 - spent_cost, 0, cost)
    # A part of a row is worth its share; rounded up: too much may be left, and not too little.
    units_left = -(-(units[order] * taken_items) // np.maximum(cost, 1))
    sums = np.concatenate((np.zeros(1, np.int64), np.cumsum(units_left)))
    return np.minimum(groups.between_edges(sums), groups.total(units))


def _largest(groups: Groups, values: IntArray, place: int) -> IntArray:
    """Return the value at a place of each group, counted from the largest; 0 if it is short."""
    order = groups.descending(values)
    at = groups.edges[:-1] + place - 1
    has = at < groups.edges[1:]
    ordered_values = np.concatenate((values[order], np.zeros(1, np.int64)))
    return np.where(has, ordered_values[np.where(has, at, -1)], 0)
