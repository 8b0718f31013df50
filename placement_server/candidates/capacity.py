"""Capacity: how many further claims of one shape would succeed, one after the other.

`at_least` are claimed on a copy of the index, `AlikeTrees` at once: what is free is an array for
each class, by tree and provider, and a placement is claimed on each tree as many times as it fits
there. This depends on what is free alone, as the other rules do not look at what is used. Trees
with more placements than are claimed together are searched again. `at_most` is what providers have
room for in sum, wherever it lies; trees that use the same sharing providers, *pools*, are a
*cluster*, in which each pool counts once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from math import gcd
from operator import or_

import numpy as np
from msgspec import Struct

from placement_server.candidates.index.arrays import BoolArray, IntArray
from placement_server.candidates.index.index import Index
from placement_server.candidates.search.placements import ClassPlacements
from placement_server.candidates.search.problem import bits
from placement_server.candidates.search.search import Search
from placement_server.candidates.search.tree_classes import TreeView

# More than this is counted as this: sums of a million of them are still exact.
MOST = 2**40
# Placements that are claimed before the trees are searched again, without what is used up.
_AT_ONCE = 64

FreeAmounts = dict[int, IntArray]


class AlikeTrees:
    """Trees that are alike, with the same sharing providers, and a placement for them.

    :param views: the trees.
    :param placements: of their class, at least one.
    :param is_pool: over all slots, whether more than one tree may take from a provider.
    :ivar is_pooled: which of the providers of each tree these are; `pools`, their slots.
    :ivar is_cut: whether there may be more placements than those that are claimed.
    """

    def __init__(
        self,
        search: Search,
        views: Sequence[TreeView],
        placements: ClassPlacements,
        is_pool: BoolArray,
    ) -> None:
        assert placements.problem is not None
        self._plan, self._items = search.plan, search.plan.items
        self._tick = search.tick
        self._eligible = placements.problem.eligible
        self._descendants = placements.problem.descendants
        self._placements = placements.distinct.some(0, _AT_ONCE)
        self.is_cut = len(self._placements) == _AT_ONCE
        self._positions = bits(reduce(or_, self._eligible))
        # The slots, what is free, and as much again while it is counted.
        arrays = 2 * (1 + len(self._plan.wants))
        search.account.take(8 * len(views) * len(self._positions) * arrays)
        self.roots = np.array([view.root for view in views])
        self._slots = self.roots[:, None] + np.array(self._positions)
        for place, position in enumerate(self._positions):
            if position >= views[0].size:
                self._slots[:, place] = views[0].slot(position)
        self.is_pooled: BoolArray = is_pool[self._slots[0]]
        self.pools: list[int] = self._slots[0][self.is_pooled].tolist()

    def read(self, free: FreeAmounts) -> FreeAmounts:
        """Return what these trees have free, by tree and provider."""
        return {class_id: amounts[self._slots] for class_id, amounts in free.items()}

    def write(self, own: FreeAmounts, free: FreeAmounts) -> None:
        """Put back what `read` returned, less what was claimed."""
        for class_id, amounts in own.items():
            free[class_id][self._slots] = amounts

    def claim(self, own: FreeAmounts, *, alone: bool = False) -> IntArray:
        """Claim the placements until none of them fits any more; return how often, by tree.

        Each is claimed a quarter as often as it fits, again and again: groups that may not share a
        provider find the more others, the more evenly all are used.

        :param own: what is free, from which the claims are taken.
        :param alone: whether each tree has the pools to itself.
        """
        claims = np.zeros(len(self.roots), np.int64)
        fitting = [
            {(c, self._positions.index(position)): n for (c, position), n in needs.items()}
            for needs in map(self._plan.needs, self._placements)
        ]
        while fitting:
            self._tick()
            is_cautious, fitting_before, fitting = len(fitting) > 1, fitting, []
            for needs in fitting_before:
                fits = {(c, place): own[c][:, place] // n for (c, place), n in needs.items()}
                times: IntArray = reduce(np.minimum, fits.values())
                if is_cautious:
                    times = -(-times // 4)
                pooled = [] if alone else [key for key in fits if self.is_pooled[key[1]]]
                if pooled:
                    # One tree after the other, until a pool is used up.
                    most = min(int(fits[key][0]) for key in pooled)
                    times = np.diff(np.minimum(np.cumsum(times), most), prepend=0)
                if times.any():
                    fitting.append(needs)
                    claims += times
                    for key, amount in needs.items():
                        taken = amount * (times.sum() if key in pooled else times)
                        own[key[0]][:, key[1]] -= taken
        return claims

    def most(self, own: FreeAmounts) -> IntArray:
        """Return how many claims each tree has room for in sum, alone with its pools."""
        sums = [units.sum(axis=1) // need for need, units in self.demands(own)]
        most: IntArray = reduce(np.minimum, sums)
        for rule in self._plan.subtrees:
            most = self._below_tops(own, rule.together, most)
        for class_id, wants in self._plan.wants.items():
            isolated = [item for item in wants if self._items[item].is_exclusive]
            if isolated:
                least = min(wants[item] for item in isolated)
                units = np.where(self._serving(isolated), own[class_id] // least, 0)
                most = _spread(units, np.int64(1), len(isolated), most)
        return most

    def demands(self, own: FreeAmounts) -> Iterator[tuple[int, IntArray]]:
        """Yield what a claim needs of something, and what each provider has of it.

        For an item so many times as it fits alone; for a class that several items want, amounts.
        """
        for number, item in enumerate(self._items):
            if item.amounts:
                yield 1, self._units(own, number)
        for class_id, wants in self._plan.wants.items():
            if len(wants) > 1:
                step = reduce(gcd, wants.values())
                usable = own[class_id] // step * step
                yield sum(wants.values()), np.where(self._serving(wants), usable, 0)

    def _units(self, own: FreeAmounts, number: int) -> IntArray:
        """Return how many times each provider takes an item, if it takes nothing else."""
        self._tick()
        units = np.full((len(self.roots), len(self._positions)), MOST, np.int64)
        for class_id, amount in self._items[number].amounts:
            units = np.minimum(units, own[class_id] // amount)
        return np.where(self._serving([number]), units, 0)

    def _serving(self, items: Iterable[int]) -> BoolArray:
        """Return which providers may serve any of some items."""
        return self._are_in(reduce(or_, [self._eligible[item] for item in items]))

    def _are_in(self, mask: int) -> BoolArray:
        return np.array([bool(mask >> position & 1) for position in self._positions])

    def _kinds(self, items: Iterable[int]) -> list[tuple[object, ...]]:
        return sorted(
            (
                self._eligible[item],
                self._items[item].amounts,
                self._items[item].is_exclusive,
            )
            for item in items
        )

    def _below_tops(self, own: FreeAmounts, items: frozenset[int], most: IntArray) -> IntArray:
        """Lower sums to what fits below the tops that a same_subtree rule allows.

        A claim has its providers below one top, which may serve one of the items and has providers
        for each of them at or below it; so it lies below one uppermost top. Other rules may ask for
        copies of the same items, of which isolated ones need different providers.
        """
        copied, copies, kinds = items, 1, self._kinds(items)
        for rule in self._plan.subtrees:
            if copied.isdisjoint(rule.together) and self._kinds(rule.together) == kinds:
                copied, copies = copied | rule.together, copies + 1
        masks = [self._eligible[item] for item in items]
        fits, at_once, seen = [], [], 0
        # Parents come before their children.
        for top in bits(reduce(or_, masks)):
            below = self._descendants[top]
            if not seen >> top & 1 and all(mask & below for mask in masks):
                seen |= below
                inside = self._are_in(below)
                units = [self._units(own, item)[:, inside].sum(axis=1) for item in items]
                fits.append(reduce(np.minimum, units))
                isolated = [item for item in items if self._items[item].is_exclusive]
                apart = [(self._eligible[item] & below).bit_count() for item in isolated]
                at_once.append(min([copies, *apart]))
        return _spread(np.transpose(fits), np.array(at_once), copies, most)

    def scarcest(self, own: FreeAmounts) -> IntArray:
        """Return by tree the id of the class of which the fewest claims are left."""
        claims = []
        for class_id, wants in self._plan.wants.items():
            units = np.where(self._serving(wants), own[class_id] // min(wants.values()), 0)
            claims.append(units.sum(axis=1) // len(wants))
        scarcest: IntArray = np.array(list(self._plan.wants))[np.argmin(claims, axis=0)]
        return scarcest


def _spread(units: IntArray, at_once: IntArray | np.int64, need: int, most: IntArray) -> IntArray:
    """Lower sums to the claims that can be spread.

    :param units: by tree and place.
    :param at_once: how many units of a place one claim takes at the most, of all that it needs.
    """
    while True:
        fewer = np.minimum(units, at_once * most[:, None]).sum(axis=1) // need
        if (fewer >= most).all():
            return most
        most = np.minimum(most, fewer)


class Capacity(Struct, frozen=True):
    """Numbers of further claims.

    :ivar index: the state that was counted.
    :ivar limit: how many trees the query wants listed; None for all.
    :ivar at_least: as many were claimed on a copy.
    :ivar at_most: no more than these succeed, whatever candidates are chosen.
    :ivar roots: the slots of the roots of the trees that take any, the most first.
    :ivar low: by such tree, the claims that it took when no other tree took any.
    :ivar high: by such tree, the most that it takes.
    :ivar limited_by: how many of these trees ran out of each class first, by name.
    """

    index: Index
    limit: int | None
    at_least: int
    at_most: int
    roots: IntArray
    low: IntArray
    high: IntArray
    limited_by: dict[str, int]

    @property
    def exact(self) -> bool:
        """Whether this is the most that any choice of candidates makes succeed."""
        return self.at_least == self.at_most


def capacity(search: Search) -> Capacity:
    """Count the further claims of a search, which yields nothing; its limit counts for nothing.

    :raises placement_server.candidates.errors.SearchGaveUp: out of time or memory.
    """
    return _Count(search).capacity()


class _Count:
    def __init__(self, search: Search) -> None:
        self.search = search
        size = search.index.size
        # Both of these, and what is free of each class before and after.
        search.account.take(8 * size * (2 + 2 * len(search.plan.wants)))
        self.low = np.zeros(size, np.int64)
        self.high = np.zeros(size, np.int64)

    def capacity(self) -> Capacity:
        """Count, and add up."""
        index, roots = self.search.index, self.search.eligible.roots
        groups = _alike_trees(self.search, roots)
        # What is free of each class that the query wants, by slot.
        before = {number: np.zeros(index.size, np.int64) for number in self.search.plan.wants}
        for number in before.keys() & index.classes.keys():
            view = index.classes[number]
            before[number] = view.by_slot(index.size, np.minimum(view.capacity - view.used, MOST))
        for trees in groups:
            self.search.tick()
            self.high[trees.roots] = trees.most(trees.read(before))
            if trees.pools:
                self.low[trees.roots] = trees.claim(trees.read(before), alone=True)
        after = {class_id: amounts.copy() for class_id, amounts in before.items()}
        at_least = self._claim(groups, after)
        apart = [int(self.high[trees.roots].sum()) for trees in groups if not trees.pools]
        of_clusters = [self._most(cluster, before) for cluster in _clusters(groups)]
        listed = roots[np.argsort(-self.low[roots], kind="stable")]
        listed = listed[self.high[listed] > 0]
        scarcest: Counter[int] = Counter()
        for trees in groups:
            scarcest.update(trees.scarcest(trees.read(after)).tolist())
        names = index.names.class_names
        return Capacity(
            index,
            self.search.query.limit,
            at_least,
            sum(apart) + sum(of_clusters),
            listed,
            self.low[listed],
            self.high[listed],
            {names[class_id]: number for class_id, number in scarcest.most_common()},
        )

    def _claim(self, groups: Sequence[AlikeTrees], free: FreeAmounts) -> int:
        """Claim until nothing fits any more; return how often."""
        count, account = 0, self.search.account
        held_bytes = account.held_bytes
        while groups:
            for trees in groups:
                own = trees.read(free)
                claims = trees.claim(own)
                trees.write(own, free)
                count += int(claims.sum())
                if not trees.pools:
                    self.low[trees.roots] += claims
            cut = [np.empty(0, np.int64), *(trees.roots for trees in groups if trees.is_cut)]
            account.give(account.held_bytes - held_bytes)
            classes = self.search.index.classes
            used = {
                class_id: classes[class_id].capacity - amounts[classes[class_id].slot]
                for class_id, amounts in free.items()
            }
            search = self.search.repeated_on(self.search.index.with_use(used))
            is_cut = np.isin(search.eligible.roots, np.concatenate(cut))
            groups = _alike_trees(search, search.eligible.roots[is_cut])
        return count

    def _most(self, cluster: Sequence[AlikeTrees], free: FreeAmounts) -> int:
        """Return the most claims of trees that use the same pools, each of which counts once."""
        most = sum(int(self.high[trees.roots].sum()) for trees in cluster)
        for demands in zip(*[trees.demands(trees.read(free)) for trees in cluster], strict=True):
            self.search.tick()
            usable, in_pools = 0, Counter[int]()
            for trees, (need, units) in zip(cluster, demands, strict=True):
                outside = units[:, ~trees.is_pooled].sum(axis=1)
                usable += int(np.minimum(outside, need * self.high[trees.roots]).sum())
                units_of_pools = units[0, trees.is_pooled].tolist()
                in_pools |= Counter(dict(zip(trees.pools, units_of_pools, strict=True)))
            most = min(most, (usable + in_pools.total()) // demands[0][0])
        return most


def _alike_trees(search: Search, roots: IntArray) -> list[AlikeTrees]:
    """Sort trees that have a placement by what they have of a query; by itself one with pools."""
    is_pool = np.zeros(search.index.size, dtype=bool)
    is_pool[search.eligible.links.share] = True
    with_pools = set(search.index.root[is_pool].tolist())
    alike: dict[tuple[object, ...], tuple[ClassPlacements, list[TreeView]]] = {}
    for view, placements in search.classes_of(roots):
        key = placements, view.shares, view.root if view.root in with_pools else -1
        alike.setdefault(key, (placements, []))[1].append(view)
    return [
        AlikeTrees(search, views, placements, is_pool)
        for placements, views in alike.values()
        if placements.distinct.get(0) is not None
    ]


def _clusters(groups: Sequence[AlikeTrees]) -> list[list[AlikeTrees]]:
    """Return the trees that are connected by pools."""
    clusters: list[list[AlikeTrees]] = []
    for trees in filter(lambda trees: trees.pools, groups):
        pools, cluster, apart = set(trees.pools), [trees], []
        for other in clusters:
            if all(pools.isdisjoint(member.pools) for member in other):
                apart.append(other)
            else:
                cluster += other
        clusters = [*apart, cluster]
    return clusters
