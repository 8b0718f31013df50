"""The feed of changes as the API reads it, and the requests that wait for more.

One thread reads the feed for all requests of a process that wait, and only while there are some; it
gives each the changes that it asks for. A request waits in the thread that called it. Servers that
can leave that thread to it provide a function to wait with (`Wait`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from placement_server.feed.horizon import Horizon
from placement_server.metrics import metrics
from placement_server.store.changes import changes
from placement_server.store.changes.changes import FeedRecord
from placement_server.store.changes.cursor import Position
from placement_server.store.errors import StoreUnavailable
from placement_server.store.store import Store
from placement_server.store.transaction import NAMES, STRUCTURE, USAGE, ReadTransaction

LOG = logging.getLogger(__name__)

ALL_KINDS: Final = frozenset({STRUCTURE, USAGE, NAMES})

INTERVAL: Final = 0.2
"""Seconds between two readings while requests wait."""

_BATCH: Final = 2000

Wait: TypeAlias = Callable[[int, float], object]
"""Waits until a descriptor is readable, for so many seconds at most.

It also ends when the client is gone, or the server is to end.
"""


class TooManyWatchers(Exception):
    """As many requests wait as may."""


class ChangeSelection(Struct, frozen=True):
    """The changes that a request asks for.

    :ivar roots: uuids of roots; None for all trees.
    :ivar most: so many changes at most.
    """

    kinds: frozenset[int]
    roots: frozenset[str] | None
    most: int


class ChangesPruned(Exception):
    """Changes behind an id are gone, or those of the database do not come up to it."""

    def __init__(self, oldest: int, newest: int) -> None:
        super().__init__(f"the records are those from {oldest} to {newest}")


class ChangesAnswer(Struct, frozen=True):
    """Some changes, in order.

    :ivar last: the id up to which these are all that were asked for.
    :ivar oldest: the id of the oldest record that is still there.
    """

    changes: Sequence[FeedRecord]
    last: int
    oldest: int


class ChangeFeed:
    """The feed of one process. Thread safe."""

    def __init__(self, store: Store, *, max_watchers: int) -> None:
        """Open the feed; nothing is read before it is asked.

        :param max_watchers: so many requests wait at a time.
        """
        self._store = store
        self._horizon = Horizon(store)
        self._watchers = Watchers(store, self._horizon, max_watchers)

    def await_changes(
        self,
        after: int | None,
        selection: ChangeSelection,
        seconds: float,
        *,
        begin: Callable[[], None],
        wait: Wait | None,
    ) -> ChangesAnswer:
        """Return the changes behind an id, once there are some or the time is over.

        :param after: None stands for the newest.
        :param begin: is called before it waits, also for a transaction that may still commit a
            smaller id, and perhaps more than once.
        :param wait: how to wait; None to do so in this thread.
        :raises ChangesPruned: not all of them are there.
        :raises placement_server.feed.service.TooManyWatchers: it would have to wait, but may not.
        :raises placement_server.store.errors.StoreUnavailable: the database failed.
        """
        answer = self._store.read(_answer, self._horizon.settle(begin), after, selection)
        if answer.changes or not seconds:
            return answer
        with self._watchers.join(selection, answer.last) as watcher:
            begin()
            watcher.wait(seconds, wait)
        if watcher.failure is not None:
            raise StoreUnavailable(
                "The feed of changes could not be read", cause=str(watcher.failure)
            ) from watcher.failure
        return replace(answer, changes=watcher.changes, last=watcher.last)


def _answer(
    tx: ReadTransaction, position: Position, after: int | None, selection: ChangeSelection
) -> ChangesAnswer:
    oldest = changes.oldest(tx)
    if after is None:
        return ChangesAnswer((), position.settled_id, oldest)
    if not oldest - 1 <= after <= max(position.last, oldest - 1):
        raise ChangesPruned(oldest, position.last)
    page = changes.page(
        tx,
        after,
        position.settled_id,
        kinds=selection.kinds,
        roots=selection.roots,
        most=selection.most,
    )
    # another process may know already that more is final
    last = max(after, position.settled_id)
    return ChangesAnswer(page, page[-1].id if len(page) == selection.most else last, oldest)


class Watcher:
    """A request that waits. Others than its own thread use it under the lock of all watchers.

    :ivar last: the id up to which `changes` are all that were asked for.
    """

    def __init__(self, selection: ChangeSelection, last: int) -> None:
        self.selection = selection
        self.last = last
        self.changes: list[FeedRecord] = []
        self.failure: Exception | None = None
        self._awake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def wait(self, seconds: float, wait: Wait | None) -> None:
        """Wait until there are changes, or for so many seconds."""
        (wait or _until_readable)(self._awake, seconds)

    def wake(self) -> None:
        os.eventfd_write(self._awake, 1)

    def close(self) -> None:
        os.close(self._awake)

    def offer(
        self,
        batch: Collection[FeedRecord],
        by_root: Mapping[str | None, list[FeedRecord]],
        upto: int,
    ) -> bool:
        """Take what it asks for, and return whether it has something now.

        :param batch: all changes that `by_root` has.
        :param upto: the id up to which these are all.
        """
        selection = self.selection
        if selection.roots is None:
            matching: Collection[FeedRecord] = batch
        else:
            matching = [
                change for root in selection.roots & by_root.keys() for change in by_root[root]
            ]
        new_changes = sorted(
            (
                change
                for change in matching
                if change.id > self.last and change.kind in selection.kinds
            ),
            key=lambda change: change.id,
        )
        self.changes = new_changes[: selection.most]
        self.last = max(self.last, upto)
        if len(new_changes) > selection.most:
            self.last = self.changes[-1].id
        return bool(self.changes)


class Watchers:
    """The requests of this process that wait. Thread safe."""

    def __init__(self, store: Store, horizon: Horizon, most: int) -> None:
        """Make room for so many requests.

        :param most: so many requests wait at a time.
        """
        self._store = store
        self._horizon = horizon
        self._most = most
        self._lock = threading.Lock()
        self._waiting_watchers: set[Watcher] = set()
        self._count = 0
        self._read_upto = 0
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def join(self, selection: ChangeSelection, last: int) -> Iterator[Watcher]:
        """Provide a place among those that wait, with all changes behind the id `last`.

        :raises TooManyWatchers: there is none.
        """
        with self._lock:
            if self._count >= self._most:
                raise TooManyWatchers
            if self._thread is None:
                thread = threading.Thread(target=self._follow, name="changes", daemon=True)
                thread.start()
                self._thread = thread
            self._read_upto = min(self._read_upto, last) if self._waiting_watchers else last
            watcher = Watcher(selection, last)
            self._count += 1
            self._waiting_watchers.add(watcher)
        metrics.WATCHERS.inc()
        try:
            yield watcher
        finally:
            metrics.WATCHERS.dec()
            with self._lock:
                self._waiting_watchers.discard(watcher)
                self._count -= 1
                watcher.close()

    def _follow(self) -> None:
        while True:
            with self._lock:
                if not self._waiting_watchers:
                    self._thread = None
                    return
                start = self._read_upto
            try:
                more = self._read(start)
            except Exception as error:  # noqa: BLE001 - those that wait report it
                self._fail(error)
                more = False
            if not more:
                time.sleep(INTERVAL)

    def _read(self, start: int) -> bool:
        """Give out what is new since a change, and return whether there is more already."""
        settled_id = self._horizon.advance().settled_id
        if settled_id <= start:
            return False
        batch = self._store.read(
            changes.page, start, settled_id, kinds=ALL_KINDS, roots=None, most=_BATCH
        )
        more = len(batch) == _BATCH
        upto = batch[-1].id if more else settled_id
        by_root: dict[str | None, list[FeedRecord]] = {}
        for change in batch:
            by_root.setdefault(change.root_uuid, []).append(change)
        with self._lock:
            # another request may have come that needs what was read before
            self._read_upto = upto if self._read_upto == start else self._read_upto
            for watcher in [
                watcher
                for watcher in self._waiting_watchers
                if watcher.last >= start and watcher.offer(batch, by_root, upto)
            ]:
                self._waiting_watchers.discard(watcher)
                watcher.wake()
        return more

    def _fail(self, error: Exception) -> None:
        if not isinstance(error, StoreUnavailable):
            LOG.error(
                "Reading the feed of changes failed; requests that wait for changes fail",
                exc_info=error,
            )
        with self._lock:
            for watcher in self._waiting_watchers:
                watcher.failure = error
                watcher.wake()
            self._waiting_watchers.clear()


def _until_readable(descriptor: int, seconds: float) -> None:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    poll.poll(seconds * 1000)
