"""The share of a request that waits, of the changes that are read for all that wait."""

from datetime import UTC, datetime

import pytest

from placement_server.feed.service import ChangeSelection, Watcher
from placement_server.store.changes.changes import FeedRecord
from placement_server.store.transaction import STRUCTURE, USAGE

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
