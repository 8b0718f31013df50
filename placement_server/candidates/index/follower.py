"""The follower of the feed of changes, which keeps the index equal to the store.

Every write transaction records in the table `changes` which trees it touched. Before a search the
follower reads, in one consistent view of the database, the records after the last one that it
knows, and the trees that they name, as they are in that same view. So a search sees everything that
was committed before it was asked for, on whichever worker, and never half a transaction.

Ids of records are assigned before transactions commit, so a lower one may appear after a higher one
(`placement_server.store.changes.cursor`). Missing ids are asked for again each time until they
appear, or have been missing for `AWAITED_FOR`; writers ensure that nothing they acknowledged is
overlooked then. Old records are pruned from the low end, so when the record
`last` is gone, others after it may be gone as well, and everything is read again. So it is where
a database lacks a write that was seen: a standby that took over without the last writes, or a
restored backup. The record `last` shows it each time, those seen before it are looked up when a
connection is new.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TypeVar

from msgspec import Struct

from placement_server.candidates.index import whole_tables
from placement_server.candidates.index.index import Index
from placement_server.candidates.index.saved.saved_file import SavedFile
from placement_server.candidates.index.saved.saved_index import (
    SavedIndex,
    UnusableCopy,
    require_same,
)
from placement_server.candidates.index.tree_tags import TreeTags
from placement_server.candidates.index.whole_tables import WholeTables
from placement_server.candidates.index.writer import IndexWriter, TreeUse
from placement_server.metrics import metrics
from placement_server.store.changes import changes, cursor, snapshot
from placement_server.store.changes.cursor import MOST_SEEN, Mark, Position, SeenRecords, Totals
from placement_server.store.changes.snapshot import ChangeRow, NameRows, TreeRows
from placement_server.store.errors import StoreError
from placement_server.store.store import Store
from placement_server.store.transaction import (
    NAMES,
    NO_ROOT,
    STRUCTURE,
    USAGE,
    VOID,
    ReadTransaction,
)

LOG = logging.getLogger(__name__)

_Read = TypeVar("_Read")

GAP_SECONDS = changes.AWAITED_FOR.total_seconds()
PRUNE_SECONDS = 900.0
# Gaps are listed one by one up to here; beyond, everything from the first of them on is read.
_LISTED_GAPS = 300
# Where one statement stops reading records and a transaction takes over.
_READ_AT_ONCE = 500
# How far back a new follower looks for ids that are still to appear.
_FIRST_LOOK = 10_000
# More changed trees than this share of all are not worth reading one by one.
_RELOAD_SHARE = 0.5
_RELOAD_LEAST = 500
# After this long without reading, records that filled gaps may have been pruned already.
_LONGEST_SLEEP = changes.KEPT_FOR.total_seconds() / 2
# Made once: each search would look for one of them.
_READ_SECONDS = {
    what: metrics.INDEX_READ_SECONDS.labels(what) for what in ("everything", "changes", "nothing")
}


class AllTrees(Struct, frozen=True):
    """All trees, as of one moment.

    :ivar marks: the newest change records.
    """

    position: Position
    names: NameRows
    tables: WholeTables
    marks: Sequence[Mark]


class News(Struct, frozen=True):
    """Changes up to one moment; None for a tree that no longer exists.

    :param records: the change records that are new.
    :param used: the use of trees of which nothing else changed.
    :param restructured_roots: the ids of the roots of trees of which more than the use changed.
    """

    position: Position
    records: Sequence[ChangeRow] = ()
    names: NameRows | None = None
    trees: Mapping[int, TreeRows | None] = {}
    used: Mapping[int, TreeUse] = {}
    restructured_roots: Collection[int] = ()


class IndexFollower:
    """The index of one process. Thread safe.

    :ivar tree_tags: tags of trees, as of the newest index.
    :param saved_file: where a copy of the index is kept for processes that start.
    """

    def __init__(
        self,
        store: Store,
        *,
        saved_file: SavedFile | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.tree_tags = TreeTags()
        self._store = store
        self._saved_file = saved_file
        self._clock = clock
        self._lock = threading.Lock()
        self._writer: IndexWriter | None = None
        self._position = Position()
        self._seen_changes = SeenRecords()
        self._rounds_begun = 0
        self._last_good_round = 0
        self._shown_lag: float | None = None
        self._followed_at = clock()
        self._pruned_at = clock()

    @property
    def is_loaded(self) -> bool:
        """Whether everything has been read once, so that an index costs only the news."""
        return self._writer is not None

    def index(self) -> Index:
        """Return an index with everything that was committed before this call.

        :raises placement_server.store.errors.StoreError: the database cannot be read.
        """
        begun_before = self._rounds_begun
        with self._lock:
            # While this call waited, another one may have read the records. If it began to do so
            # after this call was made, it has read what this call must see.
            if self._writer is None or self._last_good_round <= begun_before:
                self._follow()
            assert self._writer is not None
            return self._writer.index

    def index_with(self, also: Callable[[ReadTransaction], _Read]) -> tuple[Index, _Read]:
        """Return an index, and what a function reads in the same consistent view.

        :raises placement_server.store.errors.StoreError: the database cannot be read.
        """
        results: list[_Read] = []

        def read(tx: ReadTransaction, now: float) -> AllTrees | News:
            news = self._read(tx, now)
            results[:] = [also(tx)]  # again, where the store runs this again
            return news

        with self._lock:
            self._follow(read)
            assert self._writer is not None
            return self._writer.index, results[0]

    def _follow(
        self, read: Callable[[ReadTransaction, float], AllTrees | News] | None = None
    ) -> None:
        """Read the news, by a function where there is one."""
        self._rounds_begun += 1
        now = self._clock()
        self._begin_with_saved(now)
        began = time.perf_counter()
        use = None if read else self._read_use(now)
        news = use or self._store.read(read or self._read, now)
        try:
            self._take(news, now)
        except BaseException:
            # The writer may have half of a tree, so everything is read the next time.
            self._writer = None
            raise
        self._observe(news, began)
        self._last_good_round = self._rounds_begun

    def _observe(self, reading: AllTrees | News, began: float) -> None:
        assert self._writer is not None
        gaps = self._position.gaps
        lag = self._followed_at - gaps[0].since if gaps else 0.0
        if lag != self._shown_lag:
            self._shown_lag = lag
            metrics.INDEX_LAG.set(lag)
        what = "nothing"
        if isinstance(reading, AllTrees):
            what = "everything"
        elif reading.trees or reading.used or reading.names is not None:
            what = "changes"
        _READ_SECONDS[what].observe(time.perf_counter() - began)
        if isinstance(reading, AllTrees) or reading.trees:
            metrics.INDEX_TREES.set(len(self._writer.index.roots))
            metrics.INDEX_PROVIDERS.set(self._writer.index.size)

    def _take(self, reading: AllTrees | News, now: float) -> None:
        if isinstance(reading, AllTrees):
            self.tree_tags.clear()
            tables = reading.tables
            writer = self._writer or IndexWriter(reading.names)
            writer.replace(reading.names, tables.columns, tables.roots, tables.left_out)
            self._writer = writer
            self._seen_changes = SeenRecords(reading.marks)
            LOG.info(
                "Read all %d provider trees, up to change %d",
                len(tables.roots),
                reading.position.last,
            )
        else:
            assert self._writer is not None
            if reading.records:
                self._seen_changes.add(reading.records)
                self.tree_tags.forget(reading.restructured_roots)
            if reading.names is not None:
                meanings = self._writer.index.names.meanings
                if self._writer.rename(reading.names).names.meanings is not meanings:
                    # a class or trait has another name now, in whichever trees
                    self.tree_tags.clear()
            if reading.trees or reading.used:
                self._writer.apply(reading.trees, reading.used.values())
        self._position = reading.position
        self._followed_at = now
        if self._saved_file is not None:
            generations = partial(self._store.read, cursor.generations)
            marks = self._seen_changes.marks
            self._saved_file.save_when_due(self._writer.index, generations, self._position, marks)
        self._prune_now_and_then(now)

    def _begin_with_saved(self, now: float) -> None:
        """Go on from a saved index, if there is one and it is of this database."""
        if self._writer is not None or self._saved_file is None:
            return
        saved_index = self._saved_file.read(now)
        if saved_index is None:
            return
        began = time.perf_counter()
        try:
            writer, news, totals = self._store.read(self._read_after, saved_index, now)
            require_same(writer.apply(news.trees, news.used.values()), totals)
        except UnusableCopy as reason:
            self._saved_file.refuse(reason)
            return
        self._writer = writer
        self._seen_changes = SeenRecords(saved_index.marks)
        self._take(News(news.position, news.records), now)
        self._observe(news, began)
        LOG.info(
            "Read %d provider trees from %s, and from the database those that changed after "
            "change %d: %d",
            len(writer.index.roots),
            self._saved_file.path,
            saved_index.position.last,
            len(news.trees) + len(news.used),
        )

    def _read_after(
        self, tx: ReadTransaction, saved_index: SavedIndex, now: float
    ) -> tuple[IndexWriter, News, Totals]:
        """Read what has changed since an index was saved, and the sums by which to check it.

        :raises UnusableCopy: it is of another database, or too much has changed.
        """
        saved_index.check(tx)
        names = snapshot.names(tx)
        writer = IndexWriter(names)
        writer.replace(names, saved_index.columns, saved_index.roots)
        news = self._read_after_position(tx, writer, saved_index.position, now)
        if isinstance(news, AllTrees):
            raise UnusableCopy("too much has changed since it was written")
        saved_index.check_generations(tx, news.trees.keys() | news.used.keys())
        return writer, news, cursor.totals(tx)

    def _read_use(self, now: float) -> News | None:
        """Read the news in one statement; None when that does not return all of them.

        It nearly always does: most searches find nothing new, or claims only.
        """
        writer, position = self._writer, self._position
        gaps = position.missing_ids(_LISTED_GAPS)
        if writer is None or gaps is None or self._overslept(now):
            return None
        answer = self._store.read_single(self._read_single, position.last, gaps)
        if answer is None:
            return None
        rows, amounts = answer
        if len(rows) >= _READ_AT_ONCE or self._is_lost_in(position, rows):
            return None
        rows = position.new_in(rows)
        if not rows and not position.gaps:
            return News(position)
        used: dict[int, TreeUse] = {}
        for row in rows:
            if row.kind == USAGE and row.root_id not in used:
                tree_use = writer.place(row.root_id, amounts.get(row.root_id, {}))
                if tree_use is None:
                    return None
                used[row.root_id] = tree_use
            elif row.kind not in (USAGE, VOID):
                return None
        reached_position = position.after((row.id for row in rows), now, GAP_SECONDS)
        return News(reached_position, rows, used=used)

    def _read_single(
        self, tx: ReadTransaction, last: int, gaps: list[int]
    ) -> tuple[list[ChangeRow], snapshot.Usage] | None:
        return (
            snapshot.news(tx, last, gaps, _READ_AT_ONCE) if self._seen_changes.are_in(tx) else None
        )

    def _overslept(self, now: float) -> bool:
        """Check whether a gap may have been filled and pruned since the last reading."""
        return bool(self._position.gaps) and now - self._followed_at > _LONGEST_SLEEP

    def _is_lost_in(self, position: Position, rows: Sequence[ChangeRow]) -> bool:
        return position.is_lost_in(rows) or self._seen_changes.contradict(rows)

    def _read(self, tx: ReadTransaction, now: float) -> AllTrees | News:
        """Read the news. Changes nothing: the store may run it again."""
        if self._writer is None or self._overslept(now):
            return self._read_everything(tx, now)
        return self._read_after_position(tx, self._writer, self._position, now)

    def _read_after_position(
        self, tx: ReadTransaction, writer: IndexWriter, position: Position, now: float
    ) -> AllTrees | News:
        gaps = position.missing_ids(_LISTED_GAPS)
        start = position.last if gaps is not None else position.gaps[0].start
        rows = snapshot.changes_since(tx, start, gaps or [])
        if not self._seen_changes.are_in(tx) or self._is_lost_in(position, rows):
            LOG.info(
                "Changes that were read before, up to %d, are gone: they have been pruned, or a "
                "standby or a backup without them took over; reading all trees again",
                position.last,
            )
            return self._read_everything(tx, now)
        rows = position.new_in(rows)
        reached_position = position.after((row.id for row in rows), now, GAP_SECONDS)
        if not rows:
            return News(reached_position)
        kinds: dict[int, int] = {}
        for row in rows:
            if row.root_id != NO_ROOT:
                kinds[row.root_id] = min(row.kind, kinds.get(row.root_id, row.kind))
        if len(kinds) > max(_RELOAD_LEAST, _RELOAD_SHARE * len(writer.index.roots)):
            return self._read_everything(tx, now)
        structure = {root for root, kind in kinds.items() if kind == STRUCTURE}
        used: dict[int, TreeUse] = {}
        for root_id, amounts in snapshot.usage(tx, kinds.keys() - structure).items():
            tree_use = writer.place(root_id, amounts)
            if tree_use is None:
                structure.add(root_id)
            else:
                used[root_id] = tree_use
        trees = snapshot.trees(tx, structure)
        names = snapshot.names(tx) if any(row.kind == NAMES for row in rows) else None
        return News(reached_position, rows, names, trees, used, structure)

    def _read_everything(self, tx: ReadTransaction, now: float) -> AllTrees:
        # The first statement fixes the moment as of which all is read.
        ids = snapshot.newest_change_ids(tx, _FIRST_LOOK)
        position = Position(ids[0] if ids else 0).after(ids[1:], now, float("inf"))
        marks = cursor.newest_marks(tx, position.last, MOST_SEEN)
        return AllTrees(position, snapshot.names(tx), whole_tables.read(tx), marks)

    def _prune_now_and_then(self, now: float) -> None:
        if now - self._pruned_at < PRUNE_SECONDS:
            return
        self._pruned_at = now
        try:
            self._store.write(changes.prune)
        except StoreError as error:
            LOG.warning(
                "Deleting old rows of the table changes failed, and is tried again in %d s: %s",
                PRUNE_SECONDS,
                error,
            )
