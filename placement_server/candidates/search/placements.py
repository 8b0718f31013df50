"""Placements of one tree class, found as a search asks for them, in the order of its rounds.

Placements with amounts that are new come before those with amounts that were there already. Items
that want the same class may exchange their providers and still take the same amounts::

    A (a trait) and B want one VGPU each     A on gpu1, B on gpu2    new
                                             A on gpu1, B on gpu3    new
                                             A on gpu2, B on gpu1    put off: gpu1 and gpu2 again

The solver does not enumerate such permutations of *symmetric* items. Those of other items, where
one may go where the other may not, are found like any placement and put off here; and so are
placements that differ only in the provider of a group that asks for no resources.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice

from msgspec import Struct

from placement_server.candidates import sizes
from placement_server.candidates.limits import Account
from placement_server.candidates.query.query import Plan
from placement_server.candidates.search.problem import Positions, Problem, permutations
from placement_server.candidates.search.solver import Solver

# A request for a few candidates must not wait for all permutations between two new ones.
_MOST_IN_A_ROW = 512
_MOST_PUT_OFF = 10_000


def may_repeat(plan: Plan, symmetric_items: Sequence[tuple[int, ...]]) -> bool:
    """Check whether two placements of the solver may have the same amounts.

    :param symmetric_items: the sets of items that the solver places in one order only.
    """
    if not all(item.amounts for item in plan.items):
        return True
    sets = [frozenset(items) for items in symmetric_items]
    for by_item in plan.wants.values():
        is_apart = plan.is_isolated and all(plan.items[item].is_suffixed for item in by_item)
        exchangeable: dict[int, set[int]] = {}
        for item, amount in by_item.items():
            # Items with a provider each may only exchange equal amounts.
            exchangeable.setdefault(amount if is_apart else 0, set()).add(item)
        for equals in exchangeable.values():
            if len(equals) > 1 and not any(items >= equals for items in sets):
                return True
    return False


def distinct_first(
    plan: Plan, placements: Iterator[Positions], put_off: list[Positions], account: Account
) -> Iterator[Positions]:
    """Yield the placements whose amounts are new, and collect the others.

    After very many in a row that are not new, or very many in all, what is left comes as it is
    found: the order is worth some time, not any.
    """
    seen_keys: set[object] = set()
    in_a_row = 0
    for placement in placements:
        amounts = _amounts(plan, placement)
        if amounts not in seen_keys:
            numbers = sum([len(sums) for sums in amounts if isinstance(sums, tuple)])
            account.take(sizes.seen_amounts(len(amounts), numbers))
            seen_keys.add(amounts)
            in_a_row = 0
            yield placement
            continue
        account.take(sizes.placement(len(placement)))
        put_off.append(placement)
        in_a_row += 1
        if in_a_row == _MOST_IN_A_ROW or len(put_off) == _MOST_PUT_OFF:
            yield from placements
            return


def _amounts(plan: Plan, placement: Positions) -> tuple[object, ...]:
    """Return what is equal for two placements just when their amounts are."""
    return tuple([_of_class(by_item, placement) for by_item in plan.wants.values()])


def _of_class(by_item: Mapping[int, int], placement: Positions) -> object:
    if len(by_item) == 1:
        return placement[next(iter(by_item))]
    sums: dict[int, int] = {}
    for item, amount in by_item.items():
        at = placement[item]
        sums[at] = sums.get(at, 0) + amount
    # One flat tuple takes a quarter of a set of pairs.
    return tuple(chain.from_iterable(sorted(sums.items())))


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


class ClassPlacements(Struct, eq=False):
    """What one tree class has: placements of distinct amounts, and permutations of items.

    :ivar permutation_series: the permutations, to be asked for once all distinct placements have
        been found; None where there are none.
    :ivar reason: why there is no placement, where there is none.
    :ivar problem: what is solved; None where there is a contradiction.
    """

    distinct: Series
    permutation_series: Series | None
    reason: str
    problem: Problem | None = None

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
