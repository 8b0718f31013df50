"""The cursor of one reader of the recorded changes, and the records that it has seen last.

Ids of changes are assigned before transactions commit, so a lower id may appear after a higher
one::

    seen     1 2 3 . 5 6 . . 9        last = 9, gaps = 4, 7 to 8

Some never appear, because the transaction was rolled back or the database assigns ids in steps
(Galera) or leaps (a sequence that was set).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import Final, NamedTuple

from msgspec import Struct
from sqlalchemy import case, func, literal_column, select
from sqlalchemy.sql.elements import ColumnElement

from placement_server.store.changes.snapshot import ChangeRow
from placement_server.store.dialects import plain
from placement_server.store.dialects.batches import among
from placement_server.store.tables import (
    changes,
    inventories,
    resource_provider_aggregates,
    resource_provider_traits,
    resource_providers,
)
from placement_server.store.transaction import ReadTransaction

MOST_SEEN: Final = 256
"""Change records that a reader remembers: more than there are writes that commit at once."""

_CHECKED: Final = "seen_changes"

MODULUS: Final = 1_000_003
"""Amounts are added up by their remainders: no sum of a million inventories is too large then."""

BOUND: Final = 2**62
"""Amounts beyond it count as this much."""

_C: Final = changes.c
_I: Final = inventories.c
_P: Final = resource_providers.c

_GENERATIONS: Final = select(func.sum(_P.generation))
_OF_TREES: Final = _GENERATIONS.where(among(_P.root_provider_id, "root_ids"))


class Gap(NamedTuple):
    """The ids from `start` to before `stop`, which are awaited since `since`.

    A range, because a leap may be one of millions.
    """

    start: int
    stop: int
    since: float


class Position(Struct, frozen=True):
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
        """Return the ids in the gaps one by one, None when there are more than `most`."""
        if sum([gap.stop - gap.start for gap in self.gaps]) > most:
            return None
        return [number for gap in self.gaps for number in range(gap.start, gap.stop)]

    def is_lost_in(self, rows: Iterable[ChangeRow]) -> bool:
        """Check whether the change that it points to is gone."""
        return bool(self.last) and self.last not in [row.id for row in rows]

    def new_in(self, rows: Iterable[ChangeRow]) -> list[ChangeRow]:
        """Return the changes that have not been read before."""
        return [row for row in rows if row.id > self.last or (self.gaps and self._awaits(row.id))]

    def _awaits(self, number: int) -> bool:
        at = bisect_right(self.gaps, number, key=_start) - 1
        return at >= 0 and number < self.gaps[at].stop

    def after(self, ids: Iterable[int], now: float, gap_seconds: float) -> Position:
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


class Mark(NamedTuple):
    """A change record: where it is, and the random number of the write that made it."""

    id: int
    write_id: int


class Totals(NamedTuple):
    """Counts and sums over all trees."""

    providers: int
    provider_ids: int
    inventories: int
    capacity: int
    used: int
    traits: int
    aggregates: int


class SeenRecords:
    """The change records that a reader has seen last, by which it knows its database again.

    A standby that took over, or a restored backup, lacks the writes that were committed last. A
    reader sees writes in nearly the order in which they are committed, so if one that it has seen
    is lost, so is one of those that it has seen last. Other writes may use their ids by then.
    """

    def __init__(self, records: Iterable[Mark | ChangeRow] = ()) -> None:
        self._write_ids: dict[int, int] = {}
        self.add(records)

    def add(self, records: Iterable[Mark | ChangeRow]) -> None:
        """Add records that have just been seen, and forget the oldest if there are too many."""
        self._write_ids.update(sorted((record.id, record.write_id) for record in records))
        surplus = max(0, len(self._write_ids) - MOST_SEEN)
        for number in list(islice(self._write_ids, surplus)):
            del self._write_ids[number]

    @property
    def marks(self) -> list[Mark]:
        """The records, by ascending id."""
        return sorted(Mark(*item) for item in self._write_ids.items())

    def contradict(self, rows: Iterable[ChangeRow]) -> bool:
        """Check whether one of these rows has the id of a record here, but is of another write."""
        seen = self._write_ids
        return any(seen.get(row.id, row.write_id) != row.write_id for row in rows)

    def are_in(self, tx: ReadTransaction) -> bool:
        """Check that a database has all of these records.

        It is asked once for each connection: one that was made again may lead to another database.
        """
        info = tx.connection.info
        if info.get(_CHECKED) is self:
            return True
        marks = self.marks
        if marks and not has_marks(tx, marks):
            return False
        info[_CHECKED] = self
        return True


def newest_marks(tx: ReadTransaction, last: int, most: int) -> list[Mark]:
    """Return the newest change records up to an id, ascending."""
    statement = (
        f"SELECT id, write_id FROM changes WHERE id <= {tx.batches.mark} "
        f"ORDER BY id DESC LIMIT {most}"
    )
    return [Mark(*row) for row in reversed(plain.rows(tx.connection, statement, (last,)))]


def has_marks(tx: ReadTransaction, marks: Sequence[Mark]) -> bool:
    """Check that a database has change records, given by ascending id, and from the same writes.

    A database that was restored from a backup, and has gone on since, has others under their ids.
    """
    statement = select(_C.id, _C.write_id).where(_C.id.between(marks[0].id, marks[-1].id))
    return set(marks) <= {Mark(*row) for row in tx.execute(statement)}


def totals(tx: ReadTransaction) -> Totals:
    """Add up what all trees have."""
    count = func.count(literal_column("*"))
    statements = (
        select(count, func.sum(resource_providers.c.id)).select_from(resource_providers),
        select(count, func.sum(_remainder(_I.capacity)), func.sum(_remainder(_I.used))),
        select(count).select_from(resource_provider_traits),
        select(count).select_from(resource_provider_aggregates),
    )
    return Totals(
        *(int(value or 0) for statement in statements for value in tx.execute(statement).one())
    )


def _remainder(amount: ColumnElement[int]) -> ColumnElement[int]:
    within = case((amount > BOUND, BOUND), (amount < -BOUND, -BOUND), else_=amount)
    return within % MODULUS


def generations(tx: ReadTransaction) -> dict[int, int]:
    """Return by root the sum of the generations of its tree."""
    statement = select(_P.root_provider_id, func.sum(_P.generation)).group_by(_P.root_provider_id)
    return {root_id: int(total) for root_id, total in tx.execute(statement)}


def generations_beside(tx: ReadTransaction, root_ids: Collection[int]) -> int:
    """Return the sum of the generations of all trees but some."""
    every = tx.execute(_GENERATIONS).scalar()
    some = tx.execute_among(_OF_TREES, "root_ids", root_ids)
    return int(every or 0) - sum(int(total or 0) for (total,) in some)
