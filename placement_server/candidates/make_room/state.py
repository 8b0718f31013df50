"""Free amounts while a plan is made: places are claimed, consumers leave, and both are undone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import replace

import numpy as np

from placement_server.candidates.index.arrays import IntArray
from placement_server.candidates.index.class_columns import largest_amounts
from placement_server.candidates.index.index import Index
from placement_server.candidates.make_room.holdings import Amounts, Key

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
        self.base: Free = {}
        for class_id, view in index.classes.items():
            amounts = np.zeros(index.size, np.int64)
            amounts[view.slot] = view.capacity - view.used
            self.base[class_id] = amounts
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


def emptied(index: Index) -> Index:
    """Return a copy of an index in which nothing is used."""
    empty = copy(index)
    empty.classes = {}
    for class_id, view in index.classes.items():
        unused = np.zeros_like(view.used)
        most = view.max_unit.astype(np.int64)
        fit = largest_amounts(view.capacity, most, unused).astype(np.int32)
        empty.classes[class_id] = replace(view, used=unused, fit=fit)
    return empty
