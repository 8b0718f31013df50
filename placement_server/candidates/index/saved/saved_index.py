"""An index as bytes, for a process that starts to go on from.

    version     a line of text
    length      of the header, 8 bytes
    header      JSON: the place in the feed of changes, names and sizes of the arrays, small values
    arrays      each as it is in memory, at a multiple of 8 bytes
    digest      of all before it

Nothing in it is executed or imported. The digest shows damage and not intent, so only a file that
nobody else could have written is read (`placement_server.candidates.index.saved.saved_file`).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import chain
from typing import Any, Final

import msgspec
import numpy as np
from msgspec import Struct

from compute_agent.programs.decoding import Count, Whole, decode
from placement_server.candidates.index.arrays import IntArray
from placement_server.candidates.index.columns import Columns
from placement_server.candidates.index.index import Index
from placement_server.candidates.index.saved.saved_columns import (
    Array,
    SmallValues,
    arrays_of,
    columns_from,
    require_consistency,
)
from placement_server.candidates.index.set_table import occurring
from placement_server.candidates.index.writer import IndexWriter
from placement_server.store.changes import changes, cursor, snapshot
from placement_server.store.changes.cursor import BOUND, MODULUS, Gap, Mark, Position, Totals
from placement_server.store.schema.revision import NEWEST_REVISION
from placement_server.store.transaction import ReadTransaction

_KIND: Final = b"placement index, version "
_VERSION: Final = _KIND + b"3\n"
_LENGTH: Final = 8
_DIGEST: Final = 32
_ALIGNED: Final = 8


class UnusableCopy(Exception):
    """Bytes are not an index that this program can go on from."""


class _Header(Struct, frozen=True):
    """What arrays follow, by name, type and length, and all that is in none of them."""

    schema: str
    last: Whole
    gaps: list[tuple[Whole, Whole]]
    marks: list[tuple[Whole, Whole]]
    values: SmallValues
    arrays: list[tuple[str, str, Count]]


class SavedIndex(Struct, frozen=True):
    """The trees of an index, without what they are called today.

    :param roots: the slots of the roots, by ascending provider id.
    :param generations: of each root, the sum over its tree. They may be newer than the trees:
        those of trees that have changed since count for nothing.
    :param position: up to where in the feed of changes the trees are.
    :param marks: the newest change records that were read with them.
    """

    columns: Columns
    roots: IntArray
    generations: IntArray
    position: Position
    marks: Sequence[Mark]

    @classmethod
    def of(
        cls,
        index: Index,
        generations: Mapping[int, int],
        position: Position,
        marks: Sequence[Mark],
    ) -> "SavedIndex":
        """Take the living trees of an index, while its writer may go on.

        :param generations: by the id of the root, the sum over the tree.
        """
        columns, roots = IndexWriter.on_copy(index).compact()
        root_ids = columns.provider_id.view()[roots].tolist()
        of_roots = [generations.get(root_id, 0) for root_id in root_ids]
        return cls(columns, roots, np.array(of_roots, dtype=np.int64), position, marks)

    def encode(self) -> Iterator[bytes | memoryview]:
        """Yield the bytes in parts."""
        digest = blake2b(digest_size=_DIGEST)
        for part in self._parts():
            digest.update(part)
            yield part
        yield digest.digest()

    def _parts(self) -> Iterator[bytes | memoryview]:
        columns = self.columns
        arrays = arrays_of(columns)
        arrays |= {"roots": self.roots, "generations": self.generations}
        header = msgspec.json.encode(
            _Header(
                NEWEST_REVISION,
                self.position.last,
                [(gap.start, gap.stop) for gap in self.position.gaps],
                [(mark.id, mark.write_id) for mark in self.marks],
                SmallValues(
                    list(columns.classes),
                    columns.trait_sets.members,
                    columns.aggregate_sets.members,
                    [shape.parents for shape in columns.shapes],
                ),
                [(name, array.dtype.str, len(array)) for name, array in arrays.items()],
            )
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
        if not cursor.has_marks(tx, self.marks):
            raise UnusableCopy(
                "the database does not have the change records that it was read from: it is "
                "another one, it was restored from a backup, or the records have been pruned"
            )
        gaps, newest = self.position.gaps, snapshot.newest_change_ids(tx, 1)
        if gaps and newest[0] - gaps[0].start >= changes.KEPT_ROWS:
            raise UnusableCopy(
                "records of writes that had not ended when it was saved may have been pruned since"
            )

    def check_generations(self, tx: ReadTransaction, changed_roots: Collection[int]) -> None:
        """Check that the trees which have no new change record are those of the database.

        :param changed_roots: the ids of the roots of those that have.
        :raises UnusableCopy: others have been written since.
        """
        root_ids = self.columns.provider_id.view()[self.roots]
        is_changed = np.isin(root_ids, list(changed_roots))
        if self.generations[~is_changed].sum() != cursor.generations_beside(tx, changed_roots):
            raise UnusableCopy("trees without a change record have other generations")

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
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise UnusableCopy(f"its parts do not fit together: {error}") from error

    @classmethod
    def _taken_apart(cls, data: bytes, now: float) -> "SavedIndex":
        begin = len(_VERSION) + _LENGTH
        end = begin + int.from_bytes(data[len(_VERSION) : begin])
        header = decode(data[begin:end], _Header)
        if header.schema != NEWEST_REVISION:
            raise UnusableCopy("it was read from a database with another schema")
        arrays = _arrays(data, end, header.arrays)
        columns, roots = columns_from(arrays, header.values), arrays["roots"]
        generations = arrays["generations"]
        require_consistency(columns, roots)
        if generations.dtype != roots.dtype or len(generations) != len(roots):
            raise ValueError("the generations are not those of its trees")
        edges = [0, *chain.from_iterable(header.gaps), header.last]
        if edges != sorted(edges):
            raise ValueError("the gaps in the feed of changes are not before its end")
        position = Position(
            header.last, tuple(Gap(start, stop, now) for start, stop in header.gaps)
        )
        marks = [Mark(*mark) for mark in header.marks]
        ids = [mark.id for mark in marks]
        if not ids or ids != sorted(set(ids)) or ids[-1] > header.last:
            raise ValueError("the newest change records are not in order")
        return cls(columns, roots, generations, position, marks)


def _arrays(
    data: bytes, start: int, descriptions: Iterable[tuple[str, str, int]]
) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    for name, dtype, count in descriptions:
        array: Array = np.frombuffer(data, dtype=dtype, count=count, offset=start)
        arrays[name] = array
        start += array.nbytes + -array.nbytes % _ALIGNED
    return arrays


def require_same(index: Index, totals: Totals) -> None:
    """Check that an index has what a database has in sum, and only names that it has.

    :raises UnusableCopy: it is not of this database.
    """
    if totals_of(index) != totals:
        raise UnusableCopy("its trees and those of the database do not have the same sums")
    living_mask = index.columns.living_mask(index.roots)
    sets = occurring(index.trait_set[living_mask]).tolist()
    trait_ids = {trait for number in sets for trait in index.columns.trait_sets.members[number]}
    class_ids = {number for number, view in index.classes.items() if living_mask[view.slot].any()}
    names = index.names
    if not (trait_ids <= names.trait_names.keys() and class_ids <= names.class_names.keys()):
        raise UnusableCopy("its trees have classes or traits that the database lacks")


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
