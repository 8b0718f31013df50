"""Interned sets of trait ids or of aggregate uuids, and the slots whose sets pass a filter."""

import threading
from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from sys import getsizeof
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from placement_server.candidates import sizes
from placement_server.candidates.index.arrays import BoolArray, SlotArray

# The terms, and the members that are forbidden.
_Filter = tuple[tuple[Collection[Any], ...], Collection[Any]]

# The masks that a table keeps and the names in their filters, in bytes.
_MOST_KEPT: Final = 4 * 1024 * 1024
_NO_SLOTS: Final = np.empty(0, dtype=bool)


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
        self._masks: dict[_Filter, BoolArray] = {}
        self._kept_size = 0
        self._lock = threading.Lock()

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

    def containing_any(self, members: Iterable[Any], count: int) -> BoolArray:
        """Return for each of the first `count` sets whether it has any of some members."""
        containing = np.zeros(count, dtype=bool)
        for member in members:
            numbers = self.numbers_with(member)
            # A writer may be appending sets beyond those that the caller's index knows.
            containing[numbers[: bisect_left(numbers, count)]] = True
        return containing

    def passing_slots(
        self,
        count: int,
        numbers: SlotArray,
        terms: tuple[Collection[Any], ...],
        forbidden_members: Collection[Any],
    ) -> BoolArray:
        """Return for each slot whether its set passes, read-only; kept for the last filters.

        A slot keeps its set, so later only slots that have been appended meanwhile are looked up.

        :param count: how many sets the caller's index knows.
        :param numbers: the number of the set of each slot.
        :param terms: of each, a set that passes has any member; hashable.
        :param forbidden_members: of which it has none; hashable.
        """
        key, size = (terms, forbidden_members), len(numbers)
        mask = self._masks.get(key, _NO_SLOTS)
        if len(mask) < size:
            is_passing = ~self.containing_any(forbidden_members, count)
            for term in terms:
                is_passing &= self.containing_any(term, count)
            mask = np.concatenate((mask, is_passing[numbers[len(mask) :]]))
            mask.flags.writeable = False
            self._keep(key, mask)
        return mask[:size]

    def _keep(self, key: _Filter, mask: BoolArray) -> None:
        terms, forbidden_members = key
        names = list(chain(forbidden_members, *terms))
        size = sum(map(getsizeof, names)) + sizes.filter_mask(len(names), len(terms), len(mask))
        with self._lock:
            self._kept_size += size
            if self._kept_size > _MOST_KEPT:
                self._masks, self._kept_size = {}, size
            self._masks[key] = mask

    def subset(self, numbers: SlotArray) -> "tuple[SetTable, SlotArray]":
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
