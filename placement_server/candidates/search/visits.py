"""The visits of a search in order: trees, and sharing providers without a tree.

A tree gives the candidates that use at least one provider which is its alone. Many trees may reach
the same sharing providers, and each would give the same candidates of these alone, so no tree gives
them: they are looked for once, over all sharing providers, and a combination counts when one tree
reaches all of it. Nothing distinguishes trees that reach the same, so what is kept is a bit for
each *set of links*, whatever the number of trees; a combination is reached by the sets whose bits
all its providers have::

    trees        reach           sets of links      pool1  0b01
    a, b, c      pool1, pool2    bit 0              pool2  0b11      pool1 + pool2  0b01  reached
    d, pool3     pool2, pool3    bit 1              pool3  0b10      pool1 + pool3  0b00  by none

They are given by the *owner*: of the trees that these sharing providers are in, the one that is
visited first. So every candidate has one giver, and the visits of owners are spread among those of
trees: after the tree itself, where it is visited too.
"""

import random
from collections.abc import Iterator
from functools import reduce
from operator import and_, or_

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from placement_server.candidates import sizes
from placement_server.candidates.index.arrays import BoolArray, IntArray
from placement_server.candidates.index.index import Index
from placement_server.candidates.limits import Account
from placement_server.candidates.query.query import Plan
from placement_server.candidates.search.eligible import EligibleProviders
from placement_server.candidates.search.look_ahead import find_contradiction
from placement_server.candidates.search.problem import Problem, bits
from placement_server.candidates.search.tree_classes import (
    TreeClasses,
    TreeView,
    canonical_places,
)

Bytes = npt.NDArray[np.uint8]


class StandaloneSharing(Struct, frozen=True):
    """The sharing providers that may serve everything without the tree that they are linked to.

    :param slots: the slots of all sharing providers that a tree has a useful link to, ascending.
    :param linked_sets: by item and then as `slots`: the sets of links by which it can serve the
        item, one bit each; 0 where it cannot.
    :param sets: all sets of links that have a provider for each item.
    """

    slots: IntArray
    linked_sets: tuple[tuple[int, ...], ...]
    sets: int


def find_alone(
    index: Index, eligible: EligibleProviders, account: Account
) -> StandaloneSharing | None:
    """Find the sharing providers that may serve everything; None when there are none.

    Costs array operations over links and roots, and a step for each distinct set of links.
    """
    if not len(eligible.links.share):
        return None
    linked_to = np.zeros(index.size, dtype=bool)
    linked_to[eligible.links.share] = True
    slots = np.flatnonzero(linked_to)
    own = [mask[slots] for mask in eligible.own]
    foreign = [mask[slots] for mask in eligible.foreign]
    if not all((mine | theirs).any() for mine, theirs in zip(own, foreign, strict=True)):
        return None
    # Where it makes no difference, a provider in its own tree is one that is linked to it.
    same = reduce(and_, [mine == theirs for mine, theirs in zip(own, foreign, strict=True)])
    at_home = np.arange(len(slots)) + np.where(same, 0, len(slots))
    width = len(slots) if same.all() else 2 * len(slots)
    # Rows as an array, as texts and, where they differ, as an array again.
    for_rows = len(eligible.roots) * (3 * -(-width // 8) + sizes.ENTRY)
    account.take(for_rows)
    rows = _distinct_rows(_reachable_columns(index, eligible, slots, at_home, width))
    # For each column the rows that have it, as bits.
    sets = [
        int.from_bytes(
            np.packbits(rows[:, column >> 3] >> (column & 7) & 1, bitorder="little").tobytes(),
            "little",
        )
        for column in range(width)
    ]
    account.take(sizes.links(len(own), len(slots), len(rows)))
    linked_sets = [
        [
            (sets[column] if theirs[column] else 0) | (sets[home] if mine[column] else 0)
            for column, home in enumerate(at_home.tolist())
        ]
        for mine, theirs in zip(own, foreign, strict=True)
    ]
    account.give(for_rows)
    live = reduce(and_, [reduce(or_, by_slot) for by_slot in linked_sets])
    if not live:
        return None
    return StandaloneSharing(
        slots, tuple([tuple([links & live for links in by]) for by in linked_sets]), live
    )


def _reachable_columns(
    index: Index, eligible: EligibleProviders, slots: IntArray, at_home: IntArray, width: int
) -> Bytes:
    """Write down for each root, as bits, the columns of the sharing providers that it reaches."""
    roots, links = eligible.roots, eligible.links
    size = -(-width // 8)
    # There may be a million links: they are looked at in few steps.
    row = np.full(index.size, -1, dtype=np.int64)
    row[roots] = np.arange(len(roots)) * size
    byte = np.zeros(index.size, dtype=np.int32)
    byte[slots] = np.arange(len(slots)) >> 3
    bit = np.zeros(index.size, dtype=np.uint8)
    bit[slots] = 1 << (np.arange(len(slots)) & 7)
    reached_cells = np.zeros(len(roots) * size, dtype=np.uint8)
    cell = row[links.anchor] + byte[links.share]
    # In order of anchor and share the links of one byte are side by side.
    starts = np.flatnonzero(np.concatenate(((True,), cell[1:] != cell[:-1])))
    reached_cells[cell[starts]] = np.bitwise_or.reduceat(bit[links.share], starts)
    home = row[index.root[slots]]
    own = at_home[home >= 0]
    bits = (1 << (own & 7)).astype(np.uint8)
    np.bitwise_or.at(reached_cells, home[home >= 0] + (own >> 3), bits)
    return reached_cells.reshape(len(roots), size)


def _distinct_rows(rows: Bytes) -> Bytes:
    if (rows == rows[0]).all():
        return rows[:1]
    texts = dict.fromkeys(rows.view(f"V{rows.shape[1]}").ravel().tolist())
    return np.frombuffer(b"".join(texts), dtype=np.uint8).reshape(len(texts), rows.shape[1])


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
        account: Account,
        shuffle: random.Random | None,
        *,
        whole: bool,
    ) -> None:
        # The places of roots in canonical order and in that of the visits.
        account.take(4 * eligible.roots.nbytes)
        alone = None if whole else find_alone(index, eligible, account)
        self._classes = TreeClasses(
            index, plan, eligible, None if alone is None else alone.slots, account
        )
        self.problems: list[Problem] = self._classes.problems
        self._roots = eligible.roots
        self._is_owner: BoolArray | None = None
        self._owners: _Owners | None = None
        if alone is not None:
            taking_part = [any(sets) for sets in zip(*alone.linked_sets, strict=True)]
            owners = np.unique(index.root[alone.slots[taking_part]])
            # The roots that have a provider of their own to use.
            useful = reduce(or_, eligible.own).copy()
            useful[alone.slots] = False
            having = np.zeros(index.size, dtype=bool)
            having[index.root[np.flatnonzero(useful)]] = True
            self._roots = eligible.roots[having[eligible.roots]]
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
            if find_contradiction(plan, _of_sets(problem, 1 << number)):
                sets &= ~(1 << number)
        return _of_sets(problem, sets)


def _of_sets(problem: Problem, sets: int) -> Problem:
    """Leave only some sets of links."""
    linked_sets = tuple([tuple([links & sets for links in by]) for by in problem.linked_sets])
    eligible = tuple([sum(1 << at for at, links in enumerate(by) if links) for by in linked_sets])
    return replace(problem, linked_sets=linked_sets, eligible=eligible)
