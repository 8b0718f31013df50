"""Rows of a count: each provider that a tree may use, its own or one that shares with it.

A provider that shares with two trees has two rows::

    tree     0     0     0     1     1
    slot     4     6     90    11    90
    foreign  no    no    yes   no    yes
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from placement_server.candidates.bounds.memory import Account
from placement_server.candidates.index.arrays import BoolArray, IntArray
from placement_server.candidates.index.index import Index
from placement_server.candidates.query.compiled import Item
from placement_server.candidates.search.eligible import Eligible

# More than this is counted as this: sums of a million of them are still exact.
MOST = 2**40

_BYTES_OF_A_ROW = 4 * 8


class Groups:
    """Groups of rows by a key, for sums over each group.

    :param key: the number of the group of each row.
    :param count: how many groups there are; some may have no rows.
    """

    def __init__(self, key: IntArray, count: int) -> None:
        self.key = key
        self.count = count
        is_sorted = bool((key[1:] >= key[:-1]).all())
        self._order: IntArray | None = None if is_sorted else np.argsort(key, kind="stable")
        ordered_keys = key if self._order is None else key[self._order]
        self.edges = np.searchsorted(ordered_keys, np.arange(count + 1))

    def total(self, values: IntArray | BoolArray) -> IntArray:
        """Return the sum of the values of each group."""
        ordered_values = values if self._order is None else values[self._order]
        sums = np.concatenate((np.zeros(1, np.int64), np.cumsum(ordered_values, dtype=np.int64)))
        return self.between_edges(sums)

    def between_edges(self, sums: IntArray) -> IntArray:
        """Return by group what is added between its edges, from running sums that begin with 0."""
        totals: IntArray = sums[self.edges[1:]] - sums[self.edges[:-1]]
        return totals

    def descending(self, values: IntArray) -> IntArray:
        """Return an order of the rows, group by group, the largest values of each first."""
        return np.lexsort((-values, self.key))


@dataclass(slots=True)
class Rows:
    """The rows of some trees.

    :ivar tree: the number of the tree of each row.
    :ivar foreign: whether the provider is of another tree, and shares.
    """

    index: Index
    tree: IntArray
    slot: IntArray
    foreign: BoolArray
    _amounts: dict[int, tuple[IntArray, IntArray]] = field(default_factory=dict)

    @classmethod
    def of(cls, index: Index, eligible: Eligible, account: Account) -> Rows:
        """List the providers that may serve something, by tree; trees count as their roots do."""
        account.take(2 * 8 * index.size)
        number = np.full(index.size, -1, dtype=np.int64)
        number[eligible.roots] = np.arange(len(eligible.roots))
        useful = np.logical_or.reduce(eligible.own)
        slots = np.flatnonzero(useful)
        trees = number[index.root[slots]]
        slots, trees = slots[trees >= 0], trees[trees >= 0]
        links = eligible.links
        account.take(_BYTES_OF_A_ROW * (len(slots) + len(links.share)))
        tree = np.concatenate((trees, number[links.anchor]))
        slot = np.concatenate((slots, links.share))
        foreign = np.arange(len(slot)) >= len(slots)
        order = np.lexsort((slot, tree))
        return cls(index, tree[order], slot[order], foreign[order])

    def __len__(self) -> int:
        return len(self.slot)

    def some(self, which: IntArray | BoolArray) -> Rows:
        """Return some of the rows."""
        return Rows(self.index, self.tree[which], self.slot[which], self.foreign[which])

    def amounts(self, class_id: int) -> tuple[IntArray, IntArray]:
        """Return what is free of a class by row, 0 where there is none, and the largest unit."""
        if class_id not in self._amounts:
            view = self.index.classes[class_id]
            at = np.minimum(np.searchsorted(view.slot, self.slot), len(view.slot) - 1)
            free = np.clip(view.capacity[at] - view.used[at], 0, MOST)
            free = np.where(view.slot[at] == self.slot, free, 0)
            self._amounts[class_id] = free, view.max_unit[at].astype(np.int64)
        return self._amounts[class_id]

    def counts(self, item: Item, own: BoolArray, foreign: BoolArray) -> IntArray:
        """Return how many times each row takes an item, if it takes nothing else.

        An item without amounts takes nothing, so that it fits any number of times.
        """
        serves = np.where(self.foreign, foreign[self.slot], own[self.slot])
        counts = np.full(len(self), MOST, dtype=np.int64)
        for class_id, amount in item.amounts:
            if class_id in self.index.classes:
                counts = np.minimum(counts, self.amounts(class_id)[0] // amount)
        return np.where(serves, counts, 0)


def counts_of(
    rows: Rows, items: Sequence[Item], eligible: Eligible, account: Account
) -> list[IntArray]:
    """Return the counts of each item; items that ask for the same share one array."""
    known_counts: dict[tuple[object, ...], IntArray] = {}
    counts = []
    for item, own, foreign in zip(items, eligible.own, eligible.foreign, strict=True):
        key = id(own), id(foreign), tuple(sorted(item.amounts))
        if key not in known_counts:
            account.take(_BYTES_OF_A_ROW * len(rows))
            known_counts[key] = rows.counts(item, own, foreign)
        counts.append(known_counts[key])
    return counts
