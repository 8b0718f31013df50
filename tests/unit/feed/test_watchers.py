"""The share of a request that waits, of the changes that are read for all that wait."""

import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from placement_server.feed.horizon import Horizon
from placement_server.feed.service import ALL_KINDS, ChangeSelection, Watcher, Watchers
from placement_server.store.changes.changes import FeedRecord
from placement_server.store.changes.cursor import Position
from placement_server.store.providers import traits
from placement_server.store.store import Store
from placement_server.store.transaction import STRUCTURE, USAGE
from tests.fixtures.databases import migrated_sqlite

AT = datetime(2026, 1, 1, tzinfo=UTC)
ROOTS = ("even", "odd")
STRUCTURAL = 7


@pytest.mark.parametrize("roots", [None, frozenset(ROOTS)])
@pytest.mark.parametrize(
    ("ids", "upto", "taken_ids", "last"),
    [
        ([4], 4, [], 5),  # read for another request, which asked for earlier ones
        ([4, 5], 9, [], 9),
        ([4, 5, 6], 9, [6], 9),
        ([6, STRUCTURAL, 9], 12, [6, 9], 12),
        ([6, 8, 9], 9, [6, 8], 8),  # the rest is for the next request
    ],
)
def test_a_request_takes_each_change_behind_its_start_once_and_in_order_up_to_its_limit(
    roots: frozenset[str] | None, ids: list[int], upto: int, taken_ids: list[int], last: int
) -> None:
    batch = [
        FeedRecord(number, AT, ROOTS[number % 2], STRUCTURE if number == STRUCTURAL else USAGE)
        for number in ids
    ]
    by_root = {
        root: [change for change in batch if change.root_uuid == root] for root in ("other", *ROOTS)
    }
    watcher = Watcher(ChangeSelection(frozenset({USAGE}), roots, most=2), last=5)
    assert watcher.offer(batch, by_root, upto) == bool(taken_ids)
    watcher.close()
    assert [change.id for change in watcher.changes] == taken_ids
    assert watcher.last == last


class HeldHorizon(Horizon):
    """One that answers once the test lets it, with how far it was when it was asked or is then."""

    def __init__(self, store: Store, *, as_asked: bool) -> None:
        super().__init__(store)
        self._as_asked = as_asked
        self.is_asked, self.may_answer = threading.Event(), threading.Event()

    def advance(self) -> Position:
        position = super().advance()
        self.is_asked.set()
        assert self.may_answer.wait(20)
        return position if self._as_asked else super().advance()


@pytest.mark.parametrize("earlier_first", [True, False])
def test_requests_that_began_at_different_changes_take_nothing_from_each_other(
    tmp_path: Path, earlier_first: bool
) -> None:
    store = Store.open(migrated_sqlite(tmp_path / "placement.db"))
    start = Horizon(store).advance().settled_id
    horizon = HeldHorizon(store, as_asked=earlier_first)
    watchers = Watchers(store, horizon, 2)
    selection = ChangeSelection(ALL_KINDS, None, most=10)
    if not earlier_first:
        store.write(traits.ensure, "CUSTOM_A")
    with watchers.join(selection, start + (not earlier_first)) as first:
        assert horizon.is_asked.wait(20)
        store.write(traits.ensure, "CUSTOM_A")
        with watchers.join(selection, start + earlier_first) as second:
            store.write(traits.ensure, "CUSTOM_B")
            horizon.may_answer.set()
            for watcher in (first, second):
                watcher.wait(20, None)
    earlier, later = (first, second) if earlier_first else (second, first)
    assert [change.id - start for change in earlier.changes] == [1, 2]
    assert [change.id - start for change in later.changes] == [2]
    store.close()
