"""Distinct providers for groups that may not share one: a bipartite matching."""

from collections.abc import Mapping


def can_match(needs: Mapping[int, int]) -> bool:
    """Tell whether every need can have positions of its own.

    :param needs: how many distinct positions are needed from each set of positions (one bit per
        position). Positions given to one need are not available to another.

    Works on whole kinds of needs instead of single ones: along an augmenting path a kind that has
    no free position takes one from another kind, which takes one from a third, and so on to one
    that has a free position.
    """
    kinds = list(needs)
    held = [0] * len(kinds)
    free = 0
    for kind in kinds:
        free |= kind
    for number, kind in enumerate(kinds):
        for _ in range(needs[kind]):
            free = _augment(kinds, held, free, number)
            if free < 0:
                return False
    return True


def _augment(kinds: list[int], held: list[int], free: int, start: int) -> int:
    """Give one more position to a kind; return what is free then, -1 when there is no way."""
    taken_from: dict[int, tuple[int, int]] = {}
    queue = [start]
    for number in queue:
        available = kinds[number] & free
        if available:
            gained = available & -available
            free ^= gained
            while number != start:
                asker, given = taken_from[number]
                held[number] = (held[number] | gained) ^ given
                number, gained = asker, given
            held[start] |= gained
            return free
        for other, positions in enumerate(held):
            stealable = kinds[number] & positions
            if stealable and other != start and other not in taken_from:
                taken_from[other] = (number, stealable & -stealable)
                queue.append(other)
    return -1
