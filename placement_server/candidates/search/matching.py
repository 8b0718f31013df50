"""Distinct providers for groups that may not share one: a bipartite matching."""

from collections.abc import Mapping


def can_match(needs: Mapping[int, int]) -> bool:
    """Check whether every need can have positions of its own.

    :param needs: how many distinct positions are needed from each set of positions (one bit per
        position). Positions given to one need are not available to another.

    Equal needs are handled together: along an augmenting path a need that has no free position
    takes one from another need, which takes one from a third, and so on to one that has a free
    position.
    """
    sets = list(needs)
    matched_positions = [0] * len(sets)
    free = 0
    for positions in sets:
        free |= positions
    for number, positions in enumerate(sets):
        for _ in range(needs[positions]):
            free = _augment(sets, matched_positions, free, number)
            if free < 0:
                return False
    return True


def _augment(sets: list[int], matched_positions: list[int], free: int, start: int) -> int:
    """Give one more position to a need; return what is free then, -1 when there is no way."""
    taken_from: dict[int, tuple[int, int]] = {}
    queue = [start]
    for number in queue:
        available = sets[number] & free
        if available:
            gained_position = available & -available
            free ^= gained_position
            while number != start:
                asker, released_position = taken_from[number]
                matched_positions[number] = (
                    matched_positions[number] | gained_position
                ) ^ released_position
                number, gained_position = asker, released_position
            matched_positions[start] |= gained_position
            return free
        for other, positions in enumerate(matched_positions):
            stealable = sets[number] & positions
            if stealable and other != start and other not in taken_from:
                taken_from[other] = (number, stealable & -stealable)
                queue.append(other)
    return -1
