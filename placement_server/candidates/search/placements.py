"""Placements of one tree class, found as a search asks for them, in the order of its rounds."""

import random
from collections.abc import Callable, Iterator
from itertools import chain, islice

from placement_server.candidates.bounds import sizes
from placement_server.candidates.bounds.memory import Account
from placement_server.candidates.search.distinct_first import distinct_first, may_repeat
from placement_server.candidates.search.permutations import permutations
from placement_server.candidates.search.problem import Positions, Problem
from placement_server.candidates.search.solver import Solver

# With a random order, this many independent orders are made for trees of one class.
_RANDOM_ORDERS = 16


class Series:
    """Placements of one tree class, found as they are asked for.

    :param account: counts them, some ahead of what was found.
    :param size: what each of them takes.
    """

    __slots__ = ("_account", "_counted_placements", "_more", "_size", "placements")

    def __init__(self, more: Iterator[Positions], account: Account, size: int) -> None:
        self.placements: list[Positions] = []
        self._more: Iterator[Positions] | None = more
        self._account = account
        self._counted_placements = 0
        self._size = size

    def get(self, number: int) -> Positions | None:
        """Return the placement with a number, the next to be found at most; None at the end."""
        if number < len(self.placements):
            return self.placements[number]
        found_placements = self.some(number, 1)
        return found_placements[0] if found_placements else None

    def some(self, number: int, most: int) -> list[Positions]:
        """Return the placements from a number on, as many as there are up to some.

        :param number: the next to be found at most.
        """
        placements = self.placements
        lacking = number + most - len(placements)
        if lacking > 0 and self._more is not None:
            placements += islice(self._more, lacking)
            if len(placements) < number + most:
                self._more = None
            if len(placements) > self._counted_placements:
                # doubled: most classes have one placement, and a few have thousands
                more = max(self._counted_placements, len(placements) - self._counted_placements)
                self._account.take(more * self._size)
                self._counted_placements += more
        return placements[number : number + most]


class ClassPlacements:
    """What one tree class has: placements of distinct amounts, and permutations of items.

    :ivar permutation_series: the permutations, to be asked for once all distinct placements have
        been found; None where there are none.
    :ivar reason: why there is no placement, where there is none.
    :ivar problem: what is solved; None where there is a contradiction.
    """

    __slots__ = ("distinct", "permutation_series", "problem", "reason")

    def __init__(
        self,
        distinct: Series,
        permutation_series: Series | None,
        reason: str,
        problem: Problem | None = None,
    ) -> None:
        self.distinct = distinct
        self.permutation_series = permutation_series
        self.reason = reason
        self.problem = problem

    @classmethod
    def none(cls, reason: str, account: Account) -> "ClassPlacements":
        """Return what a tree class with a contradiction has."""
        return cls(Series(iter(()), account, 0), None, reason)

    @classmethod
    def of(cls, solver: Solver, account: Account) -> "ClassPlacements":
        """Return what a solver finds."""
        solutions = solver.solutions()
        symmetric_items = solver.symmetric_items
        put_off: list[Positions] = []
        repeats = may_repeat(solver.plan, symmetric_items)
        if repeats:
            solutions = distinct_first(solver.plan, solutions, put_off, account)
        size = sizes.placement(len(solver.plan.items))
        distinct = Series(solutions, account, size)
        permutation_series: Series | None = None
        if repeats or symmetric_items:
            of_distinct = (
                permutation
                for placement in distinct.placements
                for permutation in permutations(symmetric_items, placement)
            )
            of_put_off = (
                permutation
                for positions in put_off
                for permutation in chain((positions,), permutations(symmetric_items, positions))
            )
            permutation_series = Series(chain(of_distinct, of_put_off), account, size)
        reason = "no combination of the providers that fit"
        return cls(distinct, permutation_series, reason, solver.problem)


class FirstPlacements(dict[ClassPlacements, Positions | None]):
    """The first placement of each tree class, None where there is none."""

    def __missing__(self, tree_class: ClassPlacements) -> Positions | None:
        placement = self[tree_class] = tree_class.distinct.get(0)
        return placement


class PlacementsByClass(dict[int, ClassPlacements]):
    """The placements by number of the tree class, each made when its first tree comes.

    :param make: makes those of a class; with a random order, in another order each time.
    """

    def __init__(self, make: Callable[[int], ClassPlacements]) -> None:
        self._make = make
        self._orders: dict[int, list[ClassPlacements]] = {}

    def __missing__(self, number: int) -> ClassPlacements:
        placements = self[number] = self._make(number)
        return placements

    def in_any_order(self, shuffle: random.Random) -> Callable[[int], ClassPlacements]:
        """Return a function that picks one of several random orders of a class."""

        def pick(number: int) -> ClassPlacements:
            orders = self._orders.setdefault(number, [])
            if len(orders) < _RANDOM_ORDERS:
                orders.append(self._make(number))
                return orders[-1]
            return shuffle.choice(orders)

        return pick
