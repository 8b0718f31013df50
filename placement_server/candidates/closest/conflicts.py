"""Smallest sets of relaxations that are enough, found through conflicts.

Some relaxations are *enough* when the query with them has a candidate. A *conflict* is a set
without which all others together are not enough: so every set that is enough has a member of it.
The sets of one relaxation are therefore in the first conflict; those of two are made of one member
of it, and one of a conflict that is left when this relaxation is made. Conflicts are small (most
often one condition is in the way, or two), and each takes a few trials to find, so the trials do
not grow with the number of pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TypeVar

C = TypeVar("C", bound=Hashable)
Enough = Callable[[Sequence[C]], bool]


def smallest_sets(
    relaxations: Sequence[C], enough: Enough[C], most: int
) -> Iterator[tuple[C, ...]]:
    """Yield the relaxations of which one alone is enough, then the pairs without such.

    :param enough: whether some are enough. None are not, and those that are stay so with further
        ones.
    :param most: when as many alone are enough, no pairs follow.
    """
    single_relaxations = []
    for relaxation in _conflict([], relaxations, enough):
        if enough([relaxation]):
            single_relaxations.append(relaxation)
            yield (relaxation,)
    others = [relaxation for relaxation in relaxations if relaxation not in single_relaxations]
    tried_pairs: set[tuple[C, ...]] = set()
    for first in _conflict([], others, enough) if len(single_relaxations) < most else ():
        rest = [relaxation for relaxation in others if relaxation != first]
        for second in _conflict([first], rest, enough):
            pair = tuple(sorted((first, second), key=others.index))
            if pair not in tried_pairs and enough(pair):
                yield pair
            tried_pairs.add(pair)


def _conflict(made_relaxations: list[C], others: Sequence[C], enough: Enough[C]) -> Sequence[C]:
    """Return a conflict among others of the relaxations that were made, which are not enough.

    Empty when all of them are not enough either.
    """

    def narrow(kept_relaxations: list[C], among: Sequence[C], *, is_new: bool) -> list[C]:
        """Return the least of some relaxations that is a conflict with those kept: QuickXplain.

        :param is_new: whether more is kept than when that was last tried.
        """
        if is_new and not enough(
            [
                *made_relaxations,
                *(relaxation for relaxation in others if relaxation not in kept_relaxations),
            ]
        ):
            return []
        if len(among) == 1:
            return list(among)
        first, second = among[: len(among) // 2], among[len(among) // 2 :]
        of_second = narrow([*kept_relaxations, *first], second, is_new=True)
        return [*narrow([*kept_relaxations, *of_second], first, is_new=bool(of_second)), *of_second]

    if not others or not enough([*made_relaxations, *others]):
        return []
    return narrow([], others, is_new=False)
