"""Capacity: how many further claims of one shape would succeed, one after the other.

`at_least` are claimed on a copy of the index, trees that are alike at once (`trees`); those
with more placements than that are searched again. `at_most` is what providers have room for in
sum, wherever it lies; trees that use the same sharing providers, *pools*, are a *cluster*, in which
each pool counts once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from placement_server.candidates.capacity.trees import AlikeTrees, FreeAmounts, free_amounts
from placement_server.candidates.index.arrays import IntArray
from placement_server.candidates.index.index import Index
from placement_server.candidates.search.placements import ClassPlacements
from placement_server.candidates.search.search import Search
from placement_server.candidates.search.tree_classes import TreeView


@dataclass(frozen=True, slots=True)
class Capacity:
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
        before = free_amounts(self.search.plan, index)
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
            search = self.search.repeated_on(_with_free(self.search.index, free))
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


def _with_free(index: Index, free: FreeAmounts) -> Index:
    """Return a copy of an index in which so much of some classes is free, by slot."""
    claimed = copy(index)
    claimed.classes = dict(index.classes)
    for class_id, amounts in free.items():
        view = index.classes[class_id]
        fit = np.clip(amounts[view.slot], -1, view.fit).astype(np.int32)
        claimed.classes[class_id] = replace(view, used=view.capacity - amounts[view.slot], fit=fit)
    return claimed
