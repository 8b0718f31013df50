"""Providers that come closest to what a query asks for, and lack nothing but free amounts.

Of a tree only those are looked at whose shortage is in its way: where one provider has enough for a
group, another one that has not is no obstacle. Trees come first that lack the smallest share of
what they lack most of.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from placement_server.candidates.bounds.memory import Account
from placement_server.candidates.index.arrays import BoolArray, IntArray
from placement_server.candidates.index.index import Index
from placement_server.candidates.index.sharing import Links
from placement_server.candidates.query.compiled import Item, plan
from placement_server.candidates.query.query import CandidateQuery
from placement_server.candidates.search.eligible import Eligible, find_eligible
from placement_server.candidates.search.reporter import SILENT

Shares = npt.NDArray[np.float64]

# Shares of a tree count more than any share of a provider in it.
_TREE_WEIGHT = 1e6


@dataclass(frozen=True, slots=True)
class Shortage:
    """A provider that cannot give what a group asks of one class.

    :param group: the suffix of the group.
    :param slot: the slot of the provider.
    """

    group: str
    slot: int
    resource_class: str
    requested_amount: int


@dataclass(frozen=True, slots=True)
class _Lack:
    """Providers that lack amounts for one item.

    :param slots: those that are in the way of some tree.
    :param share: by slot, the share that it has of what it lacks most of, up to 1.
    """

    item: Item
    slots: BoolArray
    share: Shares


def find_shortages(
    query: CandidateQuery, index: Index, account: Account, most: int
) -> list[Shortage]:
    """Find the closest providers, each with every class that it is short of.

    :param account: counts what is held meanwhile.
    :param most: how many providers at most.
    :raises SearchGaveUp: there is not enough memory.
    """
    held_bytes = account.held_bytes
    try:
        eligible = find_eligible(query, index, SILENT, account, whatever_amounts=True)
        if not len(eligible.roots):
            return []
        return _Shortages(query, index, eligible, account).closest(most)
    finally:
        account.give(account.held_bytes - held_bytes)


class _Shortages:
    """What the trees lack that pass every filter but those of amounts."""

    def __init__(
        self, query: CandidateQuery, index: Index, eligible: Eligible, account: Account
    ) -> None:
        self._query = query
        self._index = index
        self._eligible = eligible
        self._account = account
        # The arrays that are made for one item after the other.
        account.take(6 * 8 * index.size)
        self._inside = np.zeros(index.size, dtype=bool)
        self._inside[eligible.roots] = True
        self._fits: dict[tuple[int, int], tuple[BoolArray, Shares]] = {}

    def closest(self, most: int) -> list[Shortage]:
        """Return the shortages of the closest providers."""
        lacks = list(self._lacks())
        score = np.full(self._index.size, -1.0)
        if not lacks:
            return []
        of_tree = self._of_trees(lacks)
        for lack in lacks:
            tree = self._by_slot(of_tree, lack)
            score = np.maximum(score, np.where(lack.slots, tree * _TREE_WEIGHT + lack.share, -1.0))
        # Of the groups that ask a provider for one class, that which asks for most tells enough.
        largest: dict[tuple[int, str], Shortage] = {}
        for slot in _largest(score, most):
            for lack in lacks:
                if lack.slots[slot]:
                    for name, amount in self._short_of(lack.item, slot):
                        known_shortage = largest.get((slot, name))
                        if known_shortage is None or known_shortage.requested_amount < amount:
                            suffix = self._query.groups[lack.item.group].suffix
                            largest[slot, name] = Shortage(suffix, slot, name, amount)
        return list(largest.values())

    def _lacks(self) -> Iterator[_Lack]:
        """Yield what is lacked of each item; of equal items once."""
        seen_keys: set[tuple[object, int]] = set()
        items = plan(self._query, self._index.names.class_ids, one_per_tree=False).items
        root, links = self._index.root, self._eligible.links
        masks = zip(items, self._eligible.own, self._eligible.foreign, strict=True)
        for item, own, foreign in masks:
            if not item.amounts or (item.amounts, id(own)) in seen_keys:
                continue
            seen_keys.add((item.amounts, id(own)))
            # What is kept: which slots lack and fit, and the shares of the class and of the item.
            self._account.take((2 + 2 * 8) * self._index.size)
            own = own & self._inside[root]
            fits, share = self._fitting(item)
            is_served = np.zeros(self._index.size, dtype=bool)
            is_served[root[own & fits]] = True
            is_served[links.anchor[(foreign & fits)[links.share]]] = True
            in_the_way = own & ~is_served[root]
            foreign_in_the_way = links.share[~is_served[links.anchor] & foreign[links.share]]
            in_the_way[foreign_in_the_way] = True
            if in_the_way.any():
                yield _Lack(item, in_the_way, share)

    def _fitting(self, item: Item) -> tuple[BoolArray, Shares]:
        """Return which slots have enough for an item, and what share they have of it."""
        (fits, share), *others = [self._fitting_class(*amount) for amount in item.amounts]
        for fits_too, share_too in others:
            fits = fits & fits_too
            share = np.minimum(share, share_too)
        return fits, share

    def _fitting_class(self, class_id: int, amount: int) -> tuple[BoolArray, Shares]:
        known_class = self._fits.get((class_id, amount))
        if known_class is not None:
            return known_class
        view = self._index.classes[class_id]
        fits = view.mask(self._index.size, view.fits(amount))
        share = np.zeros(self._index.size)
        # An integer of any size may be asked for; there is no float for the largest.
        share[view.slot] = np.clip(view.fit / float(min(amount, 2**62)), 0.0, 1.0)
        self._fits[class_id, amount] = fits, share
        return fits, share

    def _of_trees(self, lacks: list[_Lack]) -> Shares:
        """Return by the slot of a root the share that the tree has of what it lacks most of."""
        index, links = self._index, self._eligible.links
        of_tree = np.ones(index.size)
        for lack in lacks:
            best = np.full(index.size, -1.0)
            slots = np.flatnonzero(lack.slots)
            np.maximum.at(best, index.root[slots], lack.share[slots])
            lack_links = _links_of(links, lack.slots)
            np.maximum.at(best, lack_links.anchor, lack.share[lack_links.share])
            of_tree = np.minimum(of_tree, np.where(best < 0, 1.0, best))
        return of_tree

    def _by_slot(self, of_tree: Shares, lack: _Lack) -> Shares:
        """Return the share of the tree of each slot; for a sharing provider that of the closest."""
        by_slot: Shares = np.where(self._inside, of_tree, 0.0)[self._index.root]
        lack_links = _links_of(self._eligible.links, lack.slots)
        np.maximum.at(by_slot, lack_links.share, of_tree[lack_links.anchor])
        return by_slot

    def _short_of(self, item: Item, slot: int) -> Iterator[tuple[str, int]]:
        for class_id, amount in item.amounts:
            if not self._fits[class_id, amount][0][slot]:
                yield self._index.names.class_names[class_id], amount


def _links_of(links: Links, slots: BoolArray) -> Links:
    of_slots = slots[links.share]
    return Links(links.share[of_slots], links.anchor[of_slots])


def _largest(score: Shares, most: int) -> list[int]:
    """Return the slots with the largest scores from 0 on, the largest first."""
    slots: IntArray = np.flatnonzero(score >= 0)
    if len(slots) > most:
        last = np.partition(score[slots], len(slots) - most)[len(slots) - most]
        above = slots[score[slots] > last]
        equal = slots[score[slots] == last]
        slots = np.concatenate((above, equal[: most - len(above)]))
    ordered_slots: list[int] = slots[np.argsort(-score[slots], kind="stable")].tolist()
    return ordered_slots
