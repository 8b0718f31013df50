"""Permutations of symmetric items: other placements of the same amounts, made without a search."""

import itertools
from collections.abc import Iterator, Sequence

from placement_server.candidates.search.problem import Positions

SymmetricItems = Sequence[tuple[int, ...]]


def permutations(symmetric_items: SymmetricItems, placement: Positions) -> Iterator[Positions]:
    """Yield the placements that differ from one only by which symmetric item took which provider.

    :param symmetric_items: sets of items that may be exchanged with each other.
    """
    if not symmetric_items:
        return iter(())
    return _permute(symmetric_items, list(placement), 0, has_changed=False)


def _permute(
    symmetric_items: SymmetricItems, placed: list[int], at: int, *, has_changed: bool
) -> Iterator[Positions]:
    items = symmetric_items[at]
    original = tuple([placed[item] for item in items])
    is_last = at + 1 == len(symmetric_items)
    for arrangement in arrangements(original):
        for item, position in zip(items, arrangement, strict=True):
            placed[item] = position
        changed = has_changed or arrangement != original
        if not is_last:
            yield from _permute(symmetric_items, placed, at + 1, has_changed=changed)
        elif changed:
            yield tuple(placed)
    for item, position in zip(items, original, strict=True):
        placed[item] = position


def arrangements(positions: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield the distinct orders of some positions, in lexical order."""
    current = sorted(positions)
    if len(set(current)) == len(current):
        return itertools.permutations(current)
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
