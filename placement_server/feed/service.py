"""The feed of changes as the API reads it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from placement_server.feed.horizon import Horizon
from placement_server.feed.watchers import ChangeSelection, Wait, Watchers
from placement_server.store.changes import changes
from placement_server.store.changes.changes import FeedRecord
from placement_server.store.changes.cursor import Position
from placement_server.store.errors import StoreUnavailable
from placement_server.store.store import Store
from placement_server.store.transaction import ReadTransaction


class ChangesPruned(Exception):
    """Changes behind an id are gone, or those of the database do not come up to it.

    :ivar oldest: the id of the oldest record.
    :ivar newest: the id of the newest one.
    """

    def __init__(self, oldest: int, newest: int) -> None:
        super().__init__(f"the records are those from {oldest} to {newest}")
        self.oldest = oldest
        self.newest = newest


@dataclass(frozen=True, slots=True)
class ChangesAnswer:
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
        :raises placement_server.feed.watchers.TooManyWatchers: it would have to wait, but may not.
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
