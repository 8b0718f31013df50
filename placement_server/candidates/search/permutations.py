"""Permutations of symmetric items: other placements of the same amounts, made without a search."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, repeat
from itertools import permutations as all_orders
from operator import concat, itemgetter

from placement_server.candidates.search.problem import Positions

SymmetricItems = Sequence[tuple[int, ...]]


def permutations(symmetric_items: SymmetricItems, placement: Positions) -> Iterator[Positions]:
    """Yield the placements that differ from one only by which symmetric item took which provider.

    :param symmetric_items: sets of items that may be exchanged with each other.
    """
    if not symmetric_items:
        return iter(())
    return filter(placement.__ne__, _permute(symmetric_items, placement))


def _permute(symmetric_items: SymmetricItems, placement: Positions) -> Iterator[Positions]:
    """Yield all orders of the first set, for each of them all of the second, and so on."""
    items, *others = symmetric_items
    orders = variants(items, arrangements(itemgetter(*items)(placement)), placement)
    if not others:
        return orders
    return chain.from_iterable(map(partial(_permute, others), orders))


def variants(
    items: Sequence[int], places: Iterator[Positions], placement: Positions
) -> Iterator[Positions]:
    """Yield a placement with some of its items at other positions.

    :param places: the positions of these items, one by one.
    """
    if list(items) == list(range(len(placement))):
        return places
    # Searches with very many candidates spend their time here, so it is done in C.
    reorder = itemgetter(
        *(
            items.index(item) if item in items else len(items) + item
            for item in range(len(placement))
        )
    )
    return map(reorder, map(concat, places, repeat(placement)))


def arrangements(positions: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield the distinct orders of some positions, in lexical order."""
    current = sorted(positions)
    if len(set(current)) == len(current):
        return all_orders(current)
    return _distinct_arrangements(current)


def _distinct_arrangements(current: list[int]) -> Iterator[tuple[int, ...]]:
    while True:
        yield tuple(current)
        pivot = len(current) - 2
        while pivot >= 0 and current[pivot] >= current[pivot + 1]:
            pivot -= 1
        if pivot < 0:
            return
        other = len(current) - 1
        while current[other] <= current[pivot]:
            other -= 1
        current[pivot], current[other] = current[other], current[pivot]
        current[pivot + 1 :] = reversed(current[pivot + 1 :])
