"""After any writes an index that begins with a saved one equals one that is loaded afresh."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from placement_server.candidates.index.follower import IndexFollower
from placement_server.candidates.index.saved.saved_file import SavedFile
from placement_server.store.errors import StoreError
from placement_server.store.store import Store
from tests.fixtures.memory_stores import memory_store
from tests.property.candidates.writes import BEGINNING, ONE_WRITE, Write, write


class AcceptedFile(SavedFile):
    """A file that has to be good enough."""

    def refuse(self, reason: object) -> None:
        raise AssertionError(reason)


def do(store: Store, writes: list[Write]) -> None:
    for kind, target, value in writes:
        # The store may refuse it.
        with contextlib.suppress(StoreError):
            write(store, kind, target, value)


@settings(max_examples=12)
@given(st.lists(ONE_WRITE, max_size=10), st.lists(st.lists(ONE_WRITE, max_size=8), max_size=3))
def test_a_saved_index_and_the_feed_give_what_the_database_gives(
    before: list[Write], after: list[list[Write]]
) -> None:
    store = memory_store()
    do(store, BEGINNING)
    follower = IndexFollower(store)
    follower.index()
    do(store, before)
    with tempfile.TemporaryDirectory() as name:
        file = AcceptedFile(Path(name))
        # Its columns have dead slots, and trees in another order than their slots.
        follower._saved_file = file
        follower.index()
        file.wait()
        assert file.path.exists()
        for writes in after:
            do(store, writes)
            again = AcceptedFile(Path(name))
            index, fresh = (
                IndexFollower(store, saved_file=again).index(),
                IndexFollower(store).index(),
            )
            again.wait()
            assert list(index.trees()) == list(fresh.trees())
            assert index.names == fresh.names
            assert index.has_nested == fresh.has_nested
            assert len(index.links.share) == len(fresh.links.share)
    store.close()
