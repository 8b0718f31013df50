"""An index as bytes, for a process that starts to go on from.

    version     a line of text
    length      of the header, 8 bytes
    header      JSON: the place in the feed of changes, names and sizes of the arrays, small values
    arrays      each as it is in memory, at a multiple of 8 bytes
    digest      of all before it

Nothing in it is executed or imported. The digest shows damage and not intent, so only a file that
nobody else could have written is read (:mod:`~placement_server.candidates.index.saved.saved_file`).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import orjson

from placement_server.candidates.index.arrays import IntArray
from placement_server.candidates.index.columns import Columns
from placement_server.candidates.index.index import Index, IndexWriter
from placement_server.candidates.index.saved.consistency import require_consistency
from placement_server.candidates.index.saved.saved_columns import (
    Array,
    arrays_of,
    columns_from,
    values_of,
)
from placement_server.store.changes import changes, lineage, snapshot
from placement_server.store.changes.cursor import Gap, Position
from placement_server.store.changes.lineage import BOUND, MODULUS, Mark, Totals
from placement_server.store.schema.revision import NEWEST_REVISION
from placement_server.store.transactions.transaction import ReadTransaction

_KIND: Final = b"placement index, version "
_VERSION: Final = _KIND + b"1\n"
_LENGTH: Final = 8
_DIGEST: Final = 32
_ALIGNED: Final = 8


class UnusableCopy(Exception):
    """Bytes are not an index that this program can go on from."""


@dataclass(frozen=True, slots=True)
class SavedIndex:
    """The trees of an index, without what they are called today.

    :param roots: the slots of the roots, by ascending provider id.
    :param position: up to where in the feed of changes the trees are.
    :param marks: the newest change records that were read with them.
    """

    columns: Columns
    roots: IntArray
    position: Position
    marks: Sequence[Mark]

    @classmethod
    def of(cls, index: Index, position: Position, marks: Sequence[Mark]) -> "SavedIndex":
        """Take the living trees of an index, while its writer may go on."""
        columns, roots = IndexWriter.on_copy(index).compact()
        return cls(columns, roots, position, marks)

    def encode(self) -> Iterator[bytes | memoryview]:
        """Yield the bytes in parts."""
        digest = blake2b(digest_size=_DIGEST)
        for part in self._parts():
            digest.update(part)
            yield part
        yield digest.digest()

    def _parts(self) -> Iterator[bytes | memoryview]:
        arrays: dict[str, Array] = {**arrays_of(self.columns), "roots": self.roots}
        header = orjson.dumps(
            {
                **values_of(self.columns),
                "schema": NEWEST_REVISION,
                "last": self.position.last,
                "gaps": [[gap.start, gap.stop] for gap in self.position.gaps],
                "marks": [list(mark) for mark in self.marks],
                "arrays": [[name, array.dtype.str, len(array)] for name, array in arrays.items()],
            }
        )
        header += b" " * (-(len(_VERSION) + len(header)) % _ALIGNED)
        yield _VERSION
        yield len(header).to_bytes(_LENGTH)
        yield header
        for array in arrays.values():
            yield np.ascontiguousarray(array).data
            yield bytes(-array.nbytes % _ALIGNED)

    def check(self, tx: ReadTransaction) -> None:
        """Check that a database has the records that it was read from, and may be read on from.

        :raises UnusableCopy: it is another one, or it was restored from a backup, or pruned.
        """
        if not lineage.has_marks(tx, self.marks):
            raise UnusableCopy(
                "the database does not have the change records that it was read from: it is "
                "another one, it was restored from a backup, or the records have been pruned"
            )
        gaps, newest = self.position.gaps, snapshot.newest_change_ids(tx, 1)
        if gaps and newest[0] - gaps[0].start >= changes.KEPT_ROWS:
            raise UnusableCopy(
                "records of writes that had not ended when it was saved may have been pruned since"
            )

    @classmethod
    def decode(cls, data: bytes, now: float) -> "SavedIndex":
        """Return what bytes contain; its arrays are these bytes.

        :param now: since when the ids that are missing in the feed of changes are awaited.
        :raises UnusableCopy: they are damaged, or were written by another version.
        """
        if not data.startswith(_KIND):
            raise UnusableCopy("it is not a saved index")
        if not data.startswith(_VERSION):
            raise UnusableCopy("another version of this program wrote it")
        content = memoryview(data)[:-_DIGEST]
        if blake2b(content, digest_size=_DIGEST).digest() != data[-_DIGEST:]:
            raise UnusableCopy("it is damaged or not complete")
        try:
            return cls._taken_apart(data, now)
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise UnusableCopy(f"its parts do not fit together: {error}") from error

    @classmethod
    def _taken_apart(cls, data: bytes, now: float) -> "SavedIndex":
        begin = len(_VERSION) + _LENGTH
        end = begin + int.from_bytes(data[len(_VERSION) : begin])
        header = orjson.loads(data[begin:end])
        if header["schema"] != NEWEST_REVISION:
            raise UnusableCopy("it was read from a database with another schema")
        arrays = _arrays(data, end, header["arrays"])
        columns, roots = columns_from(arrays, header), arrays["roots"]
        require_consistency(columns, roots)
        return cls(
            columns,
            roots,
            Position(
                header["last"], tuple(Gap(start, stop, now) for start, stop in header["gaps"])
            ),
            [Mark(*mark) for mark in header["marks"]],
        )


def _arrays(
    data: bytes, start: int, descriptions: Iterable[tuple[str, str, int]]
) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    for name, dtype, count in descriptions:
        array: Array = np.frombuffer(data, dtype=dtype, count=count, offset=start)
        arrays[name] = array
        start += array.nbytes + -array.nbytes % _ALIGNED
    return arrays


def totals_of(index: Index) -> Totals:
    """Add up what all living trees have, as the store does."""
    columns = index.columns
    living_mask = columns.living_mask(index.roots)
    slots = np.flatnonzero(living_mask)
    inventories = capacity = used = 0
    for view in index.classes.values():
        alive = np.flatnonzero(living_mask.take(view.slot))
        inventories += len(alive)
        capacity += _sum_of_remainders(view.capacity.take(alive))
        used += _sum_of_remainders(view.used.take(alive))
    return Totals(
        providers=len(slots),
        provider_ids=int(columns.provider_id.view().take(slots).sum()),
        inventories=inventories,
        capacity=capacity,
        used=used,
        traits=_members(columns.trait_sets.members, columns.trait_set.view().take(slots)),
        aggregates=_members(
            columns.aggregate_sets.members, columns.aggregate_set.view().take(slots)
        ),
    )


def _sum_of_remainders(amounts: IntArray) -> int:
    return int(np.fmod(np.clip(amounts, -BOUND, BOUND), MODULUS).sum())


def _members(sets: Sequence[tuple[Any, ...]], numbers: Array) -> int:
    return int(np.array(list(map(len, sets)), dtype=np.int64).take(numbers).sum())
