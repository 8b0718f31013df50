"""The cursor of one reader of the recorded changes.

Ids of changes are assigned before transactions commit, so a lower id may appear after a higher
one::

    seen     1 2 3 . 5 6 . . 9        last = 9, gaps = 4, 7 to 8

Some never appear, because the transaction was rolled back or the database assigns ids in steps
(Galera) or leaps (a sequence that was set).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from placement_server.store.changes.snapshot import ChangeRow


class Gap(NamedTuple):
    """The ids from ``start`` to before ``stop``, which are awaited since ``since``.

    A range, because a leap may be one of millions.
    """

    start: int
    stop: int
    since: float


@dataclass(frozen=True, slots=True)
class Position:
    """One reader's place among the changes.

    :param last: the highest id seen, 0 when there was none.
    :param gaps: ids below it that have not appeared, ascending.
    """

    last: int = 0
    gaps: tuple[Gap, ...] = ()

    @property
    def settled_id(self) -> int:
        """The highest id below which none is awaited."""
        return self.gaps[0].start - 1 if self.gaps else self.last

    def missing_ids(self, most: int) -> list[int] | None:
        """Return the ids in the gaps one by one, None when there are more than ``most``."""
        if sum(gap.stop - gap.start for gap in self.gaps) > most:
            return None
        return [number for gap in self.gaps for number in range(gap.start, gap.stop)]

    def is_lost_in(self, rows: Iterable[ChangeRow]) -> bool:
        """Check whether the change that it points to is gone."""
        return bool(self.last) and not any(row.id == self.last for row in rows)

    def new_in(self, rows: Iterable[ChangeRow]) -> list[ChangeRow]:
        """Return the changes that have not been read before."""
        return [row for row in rows if row.id > self.last or self._awaits(row.id)]

    def _awaits(self, number: int) -> bool:
        at = bisect_right(self.gaps, number, key=_start) - 1
        return at >= 0 and number < self.gaps[at].stop

    def after(self, ids: Iterable[int], now: float, gap_seconds: float) -> "Position":
        """Return the position once these ids have appeared as well.

        :param gap_seconds: what has been missing for this long is no longer awaited.
        """
        appeared_ids = sorted(set(ids))
        gaps = [
            rest
            for gap in self.gaps
            if now - gap.since < gap_seconds
            for rest in _rest(gap, appeared_ids)
        ]
        last = max(self.last, appeared_ids[-1]) if appeared_ids else self.last
        gaps += _rest(Gap(self.last + 1, last + 1, now), appeared_ids)
        return Position(last, tuple(gaps))


def _start(gap: Gap) -> int:
    return gap.start


def _rest(gap: Gap, appeared_ids: Sequence[int]) -> list[Gap]:
    """Return the rest of a gap without some ids, which are ascending."""
    rest, start = [], gap.start
    for number in appeared_ids[
        bisect_left(appeared_ids, gap.start) : bisect_left(appeared_ids, gap.stop)
    ]:
        if number > start:
            rest.append(Gap(start, number, gap.since))
        start = number + 1
    if start < gap.stop:
        rest.append(gap._replace(start=start))
    return rest
