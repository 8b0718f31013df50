"""The visits of a search in order: trees, and sharing providers without a tree.

A tree gives the candidates that use at least one provider which is its alone. What sharing
providers serve without a tree is given by the *owner*: of the trees that these sharing providers
are in, the one that is visited first. So every candidate has one giver, and the visits of owners
are spread among those of trees: after the tree itself, where it is visited too.
"""

import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from placement_server.candidates.index.arrays import BoolArray, IntArray
from placement_server.candidates.index.index import Index
from placement_server.candidates.limits.memory import Account
from placement_server.candidates.query.compiled import Plan
from placement_server.candidates.search.eligible import EligibleProviders
from placement_server.candidates.search.look_ahead import find_contradiction
from placement_server.candidates.search.problem import Problem, bits
from placement_server.candidates.search.sharing_only import StandaloneSharing, find_alone
from placement_server.candidates.search.tree_classes import (
    TreeClasses,
    TreeView,
    canonical_places,
)

# Looking at more sets of links one by one costs more than it spares.
_MOST_SETS = 256


class Visits:
    """The visits of one search in order.

    :param shuffle: for a random order, None for ascending ids of the roots.
    :param whole: leave to each tree what sharing providers serve without it, and have no owners:
        for a caller that asks what each tree has, and not for each candidate once.
    :param account: counts what is kept.
    :ivar problems: the problem of each class, by its number.
    """

    def __init__(
        self,
        index: Index,
        plan: Plan,
        eligible: EligibleProviders,
        shuffle: random.Random | None = None,
        *,
        whole: bool = False,
        account: Account | None = None,
    ) -> None:
        account = account or Account()
        # The places of roots in canonical order and in that of the visits.
        account.take(4 * eligible.roots.nbytes)
        alone = None if whole else find_alone(index, eligible, account)
        self._classes = TreeClasses(index, plan, eligible, alone, account)
        self.problems: list[Problem] = self._classes.problems
        self._roots = eligible.roots
        self._is_owner: BoolArray | None = None
        self._owners: _Owners | None = None
        if alone is not None:
            owners = _owners(index, alone)
            self._roots = _with_own(index, eligible, alone)
            self._is_owner = np.repeat((False, True), (len(self._roots), len(owners)))
            self._roots = np.concatenate((self._roots, owners))
            self._reorder(np.argsort(canonical_places(index)[self._roots], kind="stable"))
        if shuffle is not None:
            order = list(range(len(self._roots)))
            shuffle.shuffle(order)
            self._reorder(np.array(order, dtype=np.int64))
        if alone is not None and self._is_owner is not None:
            in_order = self._roots[self._is_owner].tolist()
            self._owners = _Owners(self._classes, alone, in_order)

    def _reorder(self, order: IntArray) -> None:
        self._roots = self._roots[order]
        if self._is_owner is not None:
            self._is_owner = self._is_owner[order]

    def __len__(self) -> int:
        return len(self._roots)

    def classes(self, start: int, stop: int) -> tuple[list[TreeView], list[int]]:
        """Return for each of some visits, in order, its view and the number of its class."""
        roots = self._roots[start:stop]
        if self._is_owner is None or self._owners is None:
            return self._classes.classify(roots)
        is_owner = self._is_owner[start:stop]
        if not is_owner.any():
            return self._classes.classify(roots)
        trees: Iterator[tuple[TreeView, int]] = iter(())
        if not is_owner.all():
            trees = iter(zip(*self._classes.classify(roots[~is_owner]), strict=True))
        visits = [
            self._owners.visit(root) if owner else next(trees)
            for root, owner in zip(roots.tolist(), is_owner.tolist(), strict=True)
        ]
        return [view for view, _number in visits], [number for _view, number in visits]


class _Owners:
    """The placements of sharing providers without a tree, by owner.

    :param owners: the roots that are owners, in the order of their visits.
    """

    def __init__(self, classes: TreeClasses, alone: StandaloneSharing, owners: list[int]) -> None:
        self._classes = classes
        self._alone = alone
        slots = alone.slots.tolist()
        by_root: dict[int, list[int]] = {}
        for at, root in enumerate(classes.index.root[alone.slots].tolist()):
            by_root.setdefault(root, []).append(at)
        self._order = [at for owner in owners for at in by_root[owner]]
        self._shares = tuple([slots[at] for at in self._order])
        self._places: dict[int, tuple[int, int]] = {}
        """Where the sharing providers of an owner begin, and how many there are."""

        first = 0
        for owner in owners:
            self._places[owner] = first, len(by_root[owner])
            first += len(by_root[owner])
        self._problem: Problem | None = None

    def visit(self, owner: int) -> tuple[TreeView, int]:
        """Return the view of an owner and the number of its class."""
        if self._problem is None:
            self._problem = self._without_tree()
        first, count = self._places[owner]
        problem = replace(
            self._problem,
            eligible=tuple([mask >> first << first for mask in self._problem.eligible]),
            needed_mask=((1 << count) - 1) << first,
        )
        self._classes.problems.append(problem)
        return TreeView(owner, 0, self._shares), len(self._classes.problems) - 1

    def _without_tree(self) -> Problem:
        linked_sets = tuple(
            [tuple([by[at] for at in self._order]) for by in self._alone.linked_sets]
        )
        problem = self._classes.without_tree(self._shares, linked_sets)
        plan, sets = self._classes.plan, self._alone.sets
        if not 1 < sets.bit_count() <= _MOST_SETS:
            return problem
        # A set that cannot hold all groups would only be found out after trying its combinations.
        for number in bits(sets):
            only = _of_sets(problem, 1 << number)
            if find_contradiction(plan, only):
                sets &= ~(1 << number)
        return _of_sets(problem, sets)


def _of_sets(problem: Problem, sets: int) -> Problem:
    """Leave only some sets of links."""
    linked_sets = tuple([tuple([links & sets for links in by]) for by in problem.linked_sets])
    eligible = tuple([sum(1 << at for at, links in enumerate(by) if links) for by in linked_sets])
    return replace(problem, linked_sets=linked_sets, eligible=eligible)


def _owners(index: Index, alone: StandaloneSharing) -> IntArray:
    taking_part = [any(sets) for sets in zip(*alone.linked_sets, strict=True)]
    return np.unique(index.root[alone.slots[taking_part]])


def _with_own(index: Index, eligible: EligibleProviders, alone: StandaloneSharing) -> IntArray:
    """Return the roots that have a provider of their own to use, in canonical order."""
    useful = np.logical_or.reduce(eligible.own)
    useful[alone.slots] = False
    having = np.zeros(index.size, dtype=bool)
    having[index.root[np.flatnonzero(useful)]] = True
    roots: IntArray = eligible.roots[having[eligible.roots]]
    return roots
