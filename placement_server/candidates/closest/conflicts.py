"""Smallest sets of changes that are enough, found through conflicts.

Some changes are *enough* when the query with them has a candidate. A *conflict* is a set of changes
without which all others together are not enough: so every set that is enough has a member of it.
The sets of one change are therefore in the first conflict; those of two are made of one change of
it, and one of a conflict that is left when this change is made. Conflicts are small (most often one
condition is in the way, or two), and each takes a few trials to find, so the trials do not grow
with the number of pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TypeVar

C = TypeVar("C", bound=Hashable)
Enough = Callable[[Sequence[C]], bool]


def smallest_sets(changes: Sequence[C], enough: Enough[C], most: int) -> Iterator[tuple[C, ...]]:
    """Yield the changes of which one alone is enough, then the pairs without such.

    :param enough: whether some changes are enough. None are not, and those that are stay so with
        further ones.
    :param most: when as many alone are enough, no pairs follow.
    """
    single_changes = []
    for change in _conflict([], changes, enough):
        if enough([change]):
            single_changes.append(change)
            yield (change,)
    others = [change for change in changes if change not in single_changes]
    tried_pairs: set[tuple[C, ...]] = set()
    for first in _conflict([], others, enough) if len(single_changes) < most else ():
        rest = [change for change in others if change != first]
        for second in _conflict([first], rest, enough):
            pair = tuple(sorted((first, second), key=others.index))
            if pair not in tried_pairs and enough(pair):
                yield pair
            tried_pairs.add(pair)


def _conflict(made_changes: list[C], others: Sequence[C], enough: Enough[C]) -> Sequence[C]:
    """Return a conflict among others of the changes that were made, which are not enough.

    Empty when all of them are not enough either.
    """

    def narrow(kept_changes: list[C], among: Sequence[C], *, is_new: bool) -> list[C]:
        """Return the least of some changes that is a conflict with those kept: QuickXplain.

        :param is_new: whether more is kept than when that was last tried.
        """
        if is_new and not enough(
            [*made_changes, *(change for change in others if change not in kept_changes)]
        ):
            return []
        if len(among) == 1:
            return list(among)
        first, second = among[: len(among) // 2], among[len(among) // 2 :]
        of_second = narrow([*kept_changes, *first], second, is_new=True)
        return [*narrow([*kept_changes, *of_second], first, is_new=bool(of_second)), *of_second]

    if not others or not enough([*made_changes, *others]):
        return []
    return narrow([], others, is_new=False)
