"""Capacity: how many further claims of one shape would succeed, one after the other.

At least so many whatever candidates are chosen, at most so many with the best choices:

1. The rows: which provider serves which item of the request, how many times (:mod:`rows`).
2. The items are split into parts that take nothing of each other (:mod:`parts`); same_subtree is
   counted by zones (:mod:`zones`). A tree takes as many claims as the least of the parts.
3. Trees without pools are added; those with pools are counted by clusters (:mod:`pools`).
4. Where this leaves open whether a tree takes any, it is searched for a candidate.

All but the last are array operations over all trees at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from placement_server.candidates.bounds.heavy import SearchEffort
from placement_server.candidates.bounds.memory import Account
from placement_server.candidates.capacity.bounds import Bounds
from placement_server.candidates.capacity.parts import Part, by_pattern, competitors, parts
from placement_server.candidates.capacity.pools import Clusters, pooled_rows
from placement_server.candidates.capacity.rows import MOST, Groups, Rows, counts_of
from placement_server.candidates.capacity.terms import narrow_to_terms
from placement_server.candidates.capacity.zones import count_part
from placement_server.candidates.index.arrays import BoolArray, IntArray
from placement_server.candidates.index.index import Index
from placement_server.candidates.query.query import CandidateQuery
from placement_server.candidates.search.search import Search, SearchLimits
from placement_server.candidates.search.tree_classes import TreeView

_NO_TREES = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Capacity:
    """Numbers of further claims.

    :ivar index: the state that was counted.
    :ivar limit: how many trees the query wants listed; None for all.
    :ivar at_least: as many succeed whatever candidates are chosen.
    :ivar at_most: as many succeed with the best choices.
    :ivar roots: the slots of the roots of the trees that take any, the most first.
    :ivar low: by such tree, the fewest claims that it takes when no other tree takes any.
    :ivar high: the most.
    :ivar limited_by: how many of these trees run out of each class first, by name.
    """

    index: Index
    limit: int | None
    at_least: int
    at_most: int
    roots: IntArray = field(default_factory=_NO_TREES.copy)
    low: IntArray = field(default_factory=_NO_TREES.copy)
    high: IntArray = field(default_factory=_NO_TREES.copy)
    limited_by: dict[str, int] = field(default_factory=dict)

    @property
    def exact(self) -> bool:
        """Whether any choice of candidates gives the same number."""
        return self.at_least == self.at_most


def capacity(
    query: CandidateQuery,
    index: Index,
    *,
    seconds: float = float("inf"),
    account: Account | None = None,
    effort: SearchEffort | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Capacity:
    """Count the further claims of a query; its limit counts for nothing.

    :param seconds: after which the count gives up.
    :param account: where it counts what it holds.
    :param effort: where it is heavy after a while.
    :raises placement_server.candidates.errors.SearchGaveUp: out of time or memory.
    :raises placement_server.candidates.errors.QueryError: a class or trait does not exist.
    """
    search = Search(
        query,
        index,
        SearchLimits(seconds=seconds),
        clock=clock,
        account=account or Account(),
        effort=effort or SearchEffort(),
    )
    if not len(search.eligible.roots):
        return Capacity(index, query.limit, 0, 0)
    return _Count(search).capacity()


class _Count:
    """One count.

    :ivar bounds: what each tree takes when no other takes anything.
    """

    def __init__(self, search: Search) -> None:
        self.search = search
        self.plan = search.plan
        self.account = search.account
        self.roots = search.eligible.roots
        trees = len(self.roots)
        self.bounds = Bounds(np.zeros(trees, np.int64), np.zeros(trees, np.int64))
        self.rows = Rows.of(search.index, search.eligible, self.account)
        self.groups = Groups(self.rows.tree, trees)
        counts = counts_of(self.rows, self.plan.items, search.eligible, self.account)
        self.counts, self.unsure = narrow_to_terms(
            self.plan, search.eligible, self.rows, counts, self.groups
        )
        self.has_pool = self.groups.total(pooled_rows(self.rows)) > 0
        # By tree, the class that its cluster runs out of first; -1 where that is none of pools.
        self.scarce = np.full(trees, -1, np.int64)

    def capacity(self) -> Capacity:
        """Count, and add up."""
        pairs = competitors(self.plan, self.counts, self.groups, self.search.tick, self.account)
        for trees, competing in by_pattern(pairs, np.flatnonzero(~self.has_pool)):
            self.search.tick()
            self._count_trees(trees, parts(self.plan, self.counts, competing))
        clusters: Clusters | None = None
        if self.has_pool.any():
            competing = [pair for pair, having in pairs.items() if having[self.has_pool].any()]
            clusters = self._count_clusters(parts(self.plan, self.counts, competing))
        self._search_unsure()
        low, high = self.bounds.low, self.bounds.high
        at_least, at_most = int(low[~self.has_pool].sum()), int(high[~self.has_pool].sum())
        if clusters is not None:
            any_fits = Groups(clusters.of_tree, clusters.count).total(low[self.has_pool]) > 0
            at_least += int(np.maximum(clusters.total.low, any_fits).sum())
            at_most += int(np.where(any_fits, clusters.total.high, 0).sum())
        order = np.argsort(-low, kind="stable")
        order = order[high[order] > 0]
        return Capacity(
            self.search.index,
            self.search.query.limit,
            at_least,
            at_most,
            self.roots[order],
            low[order],
            high[order],
            self._limited_by(),
        )

    def _of_trees(self, trees: IntArray) -> tuple[Rows, list[IntArray]]:
        """Return the rows of some trees, which are numbered by their places there, and counts."""
        if len(trees) == len(self.roots):
            return self.rows, self.counts
        number = np.full(len(self.roots), -1, dtype=np.int64)
        number[trees] = np.arange(len(trees))
        chosen_rows = np.flatnonzero(number[self.rows.tree] >= 0)
        self.account.take(8 * len(chosen_rows) * (4 + len(self.counts)))
        rows = self.rows.some(chosen_rows)
        rows.tree = number[rows.tree]
        counts_by_id = {id(count): count[chosen_rows] for count in self.counts}
        return rows, [counts_by_id[id(count)] for count in self.counts]

    def _count_trees(self, trees: IntArray, by_part: list[Part]) -> None:
        rows, counts = self._of_trees(trees)
        groups = Groups(rows.tree, len(trees))
        bounds = Bounds.none(len(trees))
        for part in by_part:
            self.search.tick()
            bounds.limit(count_part(self.plan, part, rows, counts, groups, self.account))
        self.bounds.low[trees] = np.where(self.unsure[trees], 0, bounds.low)
        self.bounds.high[trees] = bounds.high

    def _count_clusters(self, by_part: list[Part]) -> Clusters:
        trees = np.flatnonzero(self.has_pool)
        rows, counts = self._of_trees(trees)
        self.search.tick()
        clusters = Clusters(self.plan, by_part, rows, counts, self.unsure[trees], self.account)
        self.bounds.low[trees] = clusters.alone.low
        self.bounds.high[trees] = clusters.alone.high
        self.scarce[trees] = clusters.scarce[clusters.of_tree]
        return clusters

    def _search_unsure(self) -> None:
        """Find out which trees take at least one claim, where the bounds leave that open."""
        low, high = self.bounds.low, self.bounds.high
        trees = np.flatnonzero((low == 0) & (high > 0))
        if not len(trees):
            return
        number = {int(root): tree for root, tree in zip(self.roots[trees], trees, strict=True)}
        for view, placement in self.search.first_placements(self.roots[trees]):
            tree = number[view.root]
            if placement is None:
                high[tree] = 0
            else:
                low[tree] = self._count_repeats(view, placement)

    def _count_repeats(self, view: TreeView, positions: tuple[int, ...]) -> int:
        """Return how many claims a tree takes at the least that has some placement.

        That placement fits until the others have taken what it needs, and each takes at most all
        amounts of a class from one provider.
        """
        needs: dict[tuple[int, int], int] = {}
        for item, position in zip(self.plan.items, positions, strict=True):
            for class_id, amount in item.amounts:
                key = view.slot(position), class_id
                needs[key] = needs.get(key, 0) + amount
        fewest = MOST
        for (slot, class_id), amount in needs.items():
            inventories = self.search.index.classes[class_id]
            at = int(np.searchsorted(inventories.slot, slot))
            free = min(int(inventories.capacity[at] - inventories.used[at]), MOST)
            of_a_claim = sum(self.plan.wants[class_id].values())
            fewest = min(fewest, (free - amount) // of_a_claim + 1)
        return fewest

    def _limited_by(self) -> dict[str, int]:
        """Count the trees by the class of which they have the least, in claims."""
        classes = list(self.plan.wants)
        claims = np.stack([self._claims_of(class_id) for class_id in classes])
        first = np.argmin(claims, axis=0)
        of_item = np.array(
            [classes.index(item.amounts[0][0]) if item.amounts else -1 for item in self.plan.items]
        )
        # A scarce group may take nothing, and then no class is short of it.
        scarce = np.where(self.scarce >= 0, of_item[self.scarce], -1)
        first = np.where(scarce >= 0, scarce, first)
        trees = np.bincount(first[self.bounds.high > 0], minlength=len(classes))
        names = self.search.index.names.class_names
        named_limits = [
            (names[class_id], int(count))
            for class_id, count in zip(classes, trees, strict=True)
            if count
        ]
        return dict(sorted(named_limits, key=lambda name_and_trees: -name_and_trees[1]))

    def _claims_of(self, class_id: int) -> IntArray:
        """Return for how many claims each tree has enough of a class, wherever it is."""
        wants = self.plan.wants[class_id]
        if len(wants) == 1:
            ((item, amount),) = wants.items()
            serves = self.counts[item] > 0
            return self.groups.total(np.where(serves, self.rows.amounts(class_id)[0] // amount, 0))
        some: BoolArray = np.logical_or.reduce([self.counts[item] > 0 for item in wants])
        free = np.where(some, self.rows.amounts(class_id)[0], 0)
        return self.groups.total(free) // sum(wants.values())
