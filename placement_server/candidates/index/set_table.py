"""Interned sets of trait ids or of aggregate uuids."""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

# Comparing all numbers with one costs a tenth of looking all of them up.
_COMPARED = 4


def looked_up(
    passing_mask: npt.NDArray[np.bool_], numbers: npt.NDArray[np.int32]
) -> npt.NDArray[np.bool_]:
    """Return for each provider whether its set is among some.

    :param passing_mask: by the number of the set.
    :param numbers: the number of the set of each provider.
    """
    passing_numbers = passing_mask.nonzero()[0]
    if len(passing_numbers) == len(passing_mask):
        return np.ones(len(numbers), dtype=bool)
    if len(passing_numbers) > _COMPARED:
        return passing_mask.take(numbers)
    among = np.zeros(len(numbers), dtype=bool)
    for number in passing_numbers.tolist():
        among |= numbers == number
    return among


def occurring(numbers: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return which small numbers there are, ascending.

    np.unique would import numpy.ma, which takes longer than to read thousands of hosts.
    """
    return np.flatnonzero(np.bincount(numbers))


class SetTable:
    """Interned sets (of trait ids, of aggregate uuids), each with a small number.

    Hosts of one kind have equal sets, so filters are evaluated once per set and then looked up
    per provider.

    :param origin: a table of which the first sets are shared, up to `shared_count`.
    """

    def __init__(self, origin: "SetTable | None" = None, shared_count: int = 0) -> None:
        self._origin = origin
        self._shared_count = shared_count
        self.members: list[tuple[Any, ...]] = (
            origin.members[:shared_count] if origin is not None else []
        )
        self._number: dict[tuple[Any, ...], int] = {}
        self._containing: dict[Any, list[int]] = {}

    def intern(self, members: tuple[Any, ...]) -> int:
        """Return the number of a set, given as a sorted tuple."""
        number = self._find(members)
        if number is None:
            number = len(self.members)
            self.members.append(members)
            for member in members:
                self._containing.setdefault(member, []).append(number)
            self._number[members] = number
        return number

    def _find(self, members: tuple[Any, ...]) -> int | None:
        number = self._number.get(members)
        if number is None and self._origin is not None:
            number = self._origin._find(members)
            # The writer of the origin goes on beyond what is shared.
            return number if number is not None and number < self._shared_count else None
        return number

    def containing_any(self, members: Iterable[Any], count: int) -> npt.NDArray[np.bool_]:
        """Return for each of the first `count` sets whether it has any of some members."""
        containing = np.zeros(count, dtype=bool)
        for member in members:
            numbers = self.numbers_with(member)
            # A writer may be appending sets beyond those that the caller's index knows.
            containing[numbers[: bisect_left(numbers, count)]] = True
        return containing

    def passing(
        self, count: int, terms: Iterable[Iterable[Any]], forbidden_members: Collection[Any]
    ) -> npt.NDArray[np.bool_]:
        """Return for each of the first `count` sets whether it passes.

        :param terms: of each, a set that passes has any member.
        :param forbidden_members: of which it has none.
        """
        passing_mask = ~self.containing_any(forbidden_members, count)
        for term in terms:
            passing_mask &= self.containing_any(term, count)
        return passing_mask

    def subset(self, numbers: npt.NDArray[np.int32]) -> "tuple[SetTable, npt.NDArray[np.int32]]":
        """Return a table of these sets alone, and their numbers in it."""
        table = SetTable()
        used_numbers = occurring(numbers)
        fresh = [table.intern(self.members[number]) for number in used_numbers.tolist()]
        places = np.searchsorted(used_numbers, numbers)
        return table, np.array(fresh, dtype=np.int32)[places]

    def numbers_with(self, member: Any) -> Sequence[int]:
        """Return the numbers of the sets that have a member, ascending."""
        numbers = self._containing.get(member, [])
        if self._origin is None:
            return numbers
        shared_numbers = self._origin.numbers_with(member)
        return [number for number in shared_numbers if number < self._shared_count] + numbers
