"""Places of one query: all that it could have if nothing were used, and what each of them lacks.

Which providers may serve a query does not depend on what is used, so it is searched for once, on a
copy of the index in which nothing is used. What is free while a plan is made then decides by
arithmetic alone, over all trees at once where they are alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from msgspec import Struct

from placement_server.candidates.index.arrays import BoolArray, IntArray
from placement_server.candidates.index.index import Index
from placement_server.candidates.make_room.holdings import Amounts, Key
from placement_server.candidates.search.placements import ClassPlacements
from placement_server.candidates.search.problem import Positions
from placement_server.candidates.search.search import Search
from placement_server.candidates.search.tree_classes import TreeView

Free = Mapping[int, IntArray]
"""By class, what is free by slot; negative where more is used than there is."""


class State:
    """What is free, and what of it differs from the beginning.

    :ivar free: now.
    :ivar base: at the beginning.
    :ivar touched: the roots of the trees where something was claimed or left, with how often.
    """

    def __init__(self, index: Index) -> None:
        self.index = index
        self.base: Free = {
            class_id: view.by_slot(index.size, view.capacity - view.used)
            for class_id, view in index.classes.items()
        }
        self.free: Free = {class_id: amounts.copy() for class_id, amounts in self.base.items()}
        self.touched: Counter[int] = Counter()

    @contextmanager
    def changed(self, amounts: Amounts, sign: int) -> Iterator[None]:
        """Add to what is free within a block."""
        self.add(amounts, sign)
        try:
            yield
        finally:
            self.add(amounts, -sign, -1)

    def add(self, amounts: Amounts, sign: int, touches: int = 1) -> None:
        """Add to what is free.

        :param touches: -1 where a change is undone.
        """
        for (slot, class_id), amount in amounts:
            self.free[class_id][slot] += sign * amount
            root = int(self.index.root[slot])
            self.touched[root] += touches
            if not self.touched[root]:
                del self.touched[root]


def shortage(amounts: Amounts, free: Free) -> dict[Key, int]:
    """Return what is lacked for some amounts."""
    return {
        key: short for key, amount in amounts if (short := amount - int(free[key[1]][key[0]])) > 0
    }


def summed(amounts: Iterable[tuple[Key, int]]) -> Amounts:
    """Add up amounts of the same inventory."""
    sums: Counter[Key] = Counter()
    for key, amount in amounts:
        sums[key] += amount
    return tuple(sums.items())


# Placements of one tree that are considered.
_MOST_PLACEMENTS: Final = 256
# Places that are kept.
_MOST_MADE: Final = 4096


class Place(NamedTuple):
    """Providers of one tree, and of those that share with it, that may serve a query.

    :ivar amounts: what it takes.
    :ivar of: the places among which it is.
    """

    root: int
    amounts: Amounts
    view: TreeView
    placement: Positions
    of: Places

    def mappings(self) -> dict[str, list[int]]:
        """Return the slots that serve each group, by its suffix."""
        slots: dict[str, list[int]] = {}
        for item, position in zip(self.of.plan.items, self.placement, strict=True):
            by_group = slots.setdefault(self.of.query.groups[item.group].suffix, [])
            if self.view.slot(position) not in by_group:
                by_group.append(self.view.slot(position))
        return slots


class Spot(NamedTuple):
    """A place by numbers: its trees, the tree among them, and the placement."""

    group: int
    tree: int
    placement: int


class AlikeTrees(Struct, frozen=True):
    """Trees with the same placements and sharing providers.

    :ivar needs: by placement, what it takes, by class id and position.
    """

    roots: IntArray
    size: int
    shares: tuple[int, ...]
    placements: list[Positions]
    needs: list[Counter[tuple[int, int]]]

    def slots(self, position: int) -> IntArray:
        """Return the slots at a position, by tree."""
        if position < self.size:
            return self.roots + position
        return np.full(len(self.roots), self.shares[position - self.size])

    def shortages(self, placement: int, free: Free) -> Iterator[tuple[int, int, IntArray]]:
        """Yield class, position, and by tree what is lacked; negative where there is more."""
        for (class_id, position), amount in self.needs[placement].items():
            yield class_id, position, amount - free[class_id][self.slots(position)]


class Places:
    """The places of one query in some trees.

    :param search: on an index in which nothing is used.
    :param is_allowed: over all slots, the roots of the trees.
    :param is_pool: over all slots, whether several trees may use a provider.
    :param rounds: how many claims of a plan may use one provider, at most.
    :param largest: by class, the largest amount of one claim.
    :ivar is_scarce: whether a sharing provider might run out while a plan is made: then no tree can
        be looked at by itself.
    :ivar is_whole: whether all placements are considered.
    """

    def __init__(
        self,
        search: Search,
        is_allowed: BoolArray,
        is_pool: BoolArray,
        state: State,
        rounds: int,
        largest: dict[int, int],
    ) -> None:
        self.query, self.plan = search.query, search.plan
        self._state = state
        self.is_scarce, self.is_whole = False, True
        alike: dict[tuple[ClassPlacements, tuple[int, ...]], list[TreeView]] = {}
        roots = search.eligible.roots
        for view, placements in search.classes_of(roots[is_allowed[roots]]):
            alike.setdefault((placements, view.shares), []).append(view)
        self.groups: list[AlikeTrees] = []
        self._in_tree: dict[int, list[Place]] = {}
        self._made: dict[Spot, Place] = {}
        for (placements, shares), views in alike.items():
            search.tick()
            listed_placements = placements.distinct.some(0, _MOST_PLACEMENTS)
            self.is_whole &= len(listed_placements) < _MOST_PLACEMENTS
            needs = list(map(self.plan.needs, listed_placements))
            roots = np.array([view.root for view in views])
            search.account.take(16 * len(views) * len(needs))
            group = AlikeTrees(roots, views[0].size, shares, listed_placements, needs)
            self.groups.append(group)
            for (class_id, position), amount in {entry for of in needs for entry in of.items()}:
                slots = group.slots(position)
                pools = slots[is_pool[slots]]
                most = rounds * max(amount, largest.get(class_id, 0))
                self.is_scarce |= bool((state.base[class_id][pools] < most).any())

    def place(self, spot: Spot) -> Place:
        """Return a place. The same few are asked for again and again."""
        place = self._made.get(spot)
        if place is None:
            if len(self._made) >= _MOST_MADE:
                self._made.clear()
            group = self.groups[spot.group]
            view = TreeView(int(group.roots[spot.tree]), group.size, group.shares)
            amounts = tuple(
                ((view.slot(position), class_id), amount)
                for (class_id, position), amount in group.needs[spot.placement].items()
            )
            placement = group.placements[spot.placement]
            place = self._made[spot] = Place(view.root, amounts, view, placement, self)
        return place

    def in_tree(self, root: int) -> list[Place]:
        """Return the places of one tree."""
        places = self._in_tree.get(root)
        if places is None:
            places = self._in_tree[root] = [
                self.place(Spot(number, tree, placement))
                for number, tree in self._trees.get(root, ())
                for placement in range(len(self.groups[number].placements))
            ]
        return places

    @cached_property
    def _trees(self) -> dict[int, list[tuple[int, int]]]:
        """The groups of a root, with its place in each."""
        trees: dict[int, list[tuple[int, int]]] = {}
        for number, group in enumerate(self.groups):
            for tree, root in enumerate(group.roots.tolist()):
                trees.setdefault(root, []).append((number, tree))
        return trees

    def fitting(self) -> Iterator[Place]:
        """Yield the places that lack nothing now, first those in trees as they were."""
        state = self._state
        if self.is_scarce:
            yield from map(self.place, self._fitting(state.free))
            return
        for spot in self.fitting_at_first:
            if int(self.groups[spot.group].roots[spot.tree]) not in state.touched:
                yield self.place(spot)
        for root in list(state.touched):
            for place in self.in_tree(root):
                if not shortage(place.amounts, state.free):
                    yield place

    @cached_property
    def fitting_at_first(self) -> list[Spot]:
        """The places that lacked nothing at the beginning, tree by tree."""
        return self._fitting(self._state.base)

    def _fitting(self, free: Free) -> list[Spot]:
        """Return the places that lack nothing of what is free, tree by tree."""
        spots: list[tuple[int, Spot]] = []
        for number, group in enumerate(self.groups):
            for placement in range(len(group.placements)):
                fits = np.ones(len(group.roots), bool)
                for _class_id, _position, short in group.shortages(placement, free):
                    fits &= short <= 0
                trees = np.flatnonzero(fits)
                roots = group.roots[trees].tolist()
                spots += [
                    (root, Spot(number, tree, placement))
                    for root, tree in zip(roots, trees.tolist(), strict=True)
                ]
        return [spot for _root, spot in sorted(spots)]
