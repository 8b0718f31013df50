"""The change records that a reader has seen last."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from placement_server.store.changes.lineage import Mark, has_marks
from placement_server.store.changes.snapshot import ChangeRow
from placement_server.store.transactions.transaction import ReadTransaction

MOST_SEEN: Final = 256
"""Change records that a reader remembers: more than there are writes that commit at once."""

_CHECKED: Final = "seen_changes"


class SeenChanges:
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
        for number in list(self._write_ids)[:-MOST_SEEN]:
            del self._write_ids[number]

    @property
    def marks(self) -> list[Mark]:
        """The records, by ascending id."""
        return sorted(Mark(*item) for item in self._write_ids.items())

    def contradict(self, rows: Iterable[ChangeRow]) -> bool:
        """Check whether one of these rows has the id of a record here, but is of another write."""
        return any(self._write_ids.get(row.id, row.write_id) != row.write_id for row in rows)

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
