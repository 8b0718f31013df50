"""The position among the notes equals one that lists every missing id."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from placement_server.store.changes.cursor import Gap, Position
from placement_server.store.changes.snapshot import ChangeRow

SECONDS = 60.0


@given(
    st.lists(st.tuples(st.frozensets(st.integers(1, 40)), st.sampled_from([0.0, 25.0])), max_size=8)
)
def test_gaps_as_ranges_are_gaps_one_by_one(rounds: list[tuple[frozenset[int], float]]) -> None:
    position, now = Position(), 0.0
    last, since = 0, dict[int, float]()
    for ids, passed in rounds:
        now += passed
        rows = [ChangeRow(number, 1, 0, write_id=number) for number in sorted(ids)]
        new = {row.id for row in position.new_in(rows)}
        assert new == {number for number in ids if number > last or number in since}
        position = position.after(ids, now, SECONDS)
        since = {uuid: then for uuid, then in since.items() if now - then < SECONDS}
        since |= dict.fromkeys(range(last + 1, max(ids, default=0)), now)
        last = max({last, *ids})
        for number in ids:
            since.pop(number, None)
        assert position.last == last
        assert position.missing_ids(40) == sorted(since)
        assert all(gap.since == since[gap.start] for gap in position.gaps)
        assert position.missing_ids(len(since) - 1) is None


def test_a_leap_of_millions_of_ids_is_one_gap() -> None:
    position = Position(5).after([20_000_000], now=0.0, gap_seconds=60)
    assert position.gaps == (Gap(6, 20_000_000, 0.0),)
    assert position.missing_ids(300) is None
    assert position.new_in([ChangeRow(id=1_000, root_id=1, kind=0, write_id=1)])
