"""Permutations of symmetric items: other placements of the same amounts, made without a search."""

from collections.abc import Iterator, Sequence

from placement_server.candidates.search.problem import Positions

SymmetricItems = Sequence[tuple[int, ...]]


def permutations(symmetric_items: SymmetricItems, placement: Positions) -> Iterator[Positions]:
    """Yield the placements that differ from one only by which symmetric item took which provider.

    :param symmetric_items: sets of items that may be exchanged with each other.
    """
    return _permuted(symmetric_items, list(placement), 0, has_changed=False)


def _permuted(
    symmetric_items: SymmetricItems, placed: list[int], at: int, *, has_changed: bool
) -> Iterator[Positions]:
    if at == len(symmetric_items):
        if has_changed:
            yield tuple(placed)
        return
    items = symmetric_items[at]
    original = [placed[item] for item in items]
    for arrangement in arrangements(original):
        for item, position in zip(items, arrangement, strict=True):
            placed[item] = position
        yield from _permuted(
            symmetric_items, placed, at + 1, has_changed=has_changed or arrangement != original
        )
    for item, position in zip(items, original, strict=True):
        placed[item] = position


def arrangements(positions: Sequence[int]) -> Iterator[list[int]]:
    """Yield the distinct orders of some positions, in lexical order."""
    current = sorted(positions)
    while True:
        yield list(current)
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
