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
from typing import Generic, TypeVar

C = TypeVar("C", bound=Hashable)


class SmallestSets(Generic[C]):
    """The smallest sets among some changes, which are not enough without any.

    :param changes: all that may be made.
    :param enough: whether some changes are enough.
    :param monotone: whether changes that are enough stay so with further ones. If not, no conflict
        says anything, and all sets are tried.
    """

    def __init__(
        self,
        changes: Sequence[C],
        enough: Callable[[Sequence[C]], bool],
        *,
        monotone: bool = True,
    ) -> None:
        self._changes = list(changes)
        self._enough = enough
        self._monotone = monotone

    def of_one(self) -> Iterator[C]:
        """Yield the changes of which one alone is enough."""
        for change in self._conflict([], self._changes):
            if self._enough([change]):
                yield change

    def of_two(self, of_one: Sequence[C]) -> Iterator[tuple[C, C]]:
        """Yield the pairs that are enough, neither of which is alone.

        :param of_one: the changes that are enough alone.
        """
        others = [change for change in self._changes if change not in of_one]
        places = {change: place for place, change in enumerate(others)}
        tried_pairs: set[tuple[C, C]] = set()
        for first in self._conflict([], others):
            rest = [change for change in others if change != first]
            for second in self._conflict([first], rest):
                pair = (first, second) if places[first] < places[second] else (second, first)
                if pair not in tried_pairs and self._enough(pair):
                    yield pair
                tried_pairs.add(pair)

    def _conflict(self, made_changes: list[C], others: list[C]) -> list[C]:
        """Return a conflict among others of the changes that were made, which are not enough.

        Empty when all of them are not enough either.
        """
        if not self._monotone:
            return others
        if not others or not self._enough([*made_changes, *others]):
            return []
        return self._narrow(made_changes, others, [], others, is_new=False)

    def _narrow(
        self,
        made_changes: list[C],
        others: list[C],
        kept_changes: list[C],
        among: list[C],
        *,
        is_new: bool,
    ) -> list[C]:
        """Return the least of some changes that is a conflict together with those kept.

        This is QuickXplain (Junker 2004).

        :param is_new: whether more is kept than when that was last tried.
        """
        if is_new:
            keeping = set(kept_changes)
            if not self._enough(
                [*made_changes, *(change for change in others if change not in keeping)]
            ):
                return []
        if len(among) == 1:
            return among
        first, second = among[: len(among) // 2], among[len(among) // 2 :]
        of_second = self._narrow(made_changes, others, [*kept_changes, *first], second, is_new=True)
        of_first = self._narrow(
            made_changes, others, [*kept_changes, *of_second], first, is_new=bool(of_second)
        )
        return [*of_first, *of_second]
