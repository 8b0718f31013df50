"""How far the notes of changes have been read, without a database."""

from __future__ import annotations

from placement_server.candidates.feed import Position


def test_ids_in_order_leave_no_gaps() -> None:
    assert Position(3).after([4, 5], now=0.0, gap_seconds=60) == Position(5, {})


def test_missing_ids_are_remembered_since_they_were_first_missed() -> None:
    position = Position(3).after([6], now=10.0, gap_seconds=60)
    assert position == Position(6, {4: 10.0, 5: 10.0})
    position = position.after([8], now=20.0, gap_seconds=60)
    assert position == Position(8, {4: 10.0, 5: 10.0, 7: 20.0})


def test_an_id_that_appears_late_is_a_gap_no_more() -> None:
    position = Position(6, {4: 10.0, 5: 10.0}).after([5], now=20.0, gap_seconds=60)
    assert position == Position(6, {4: 10.0})


def test_a_gap_is_given_up_once_no_transaction_can_be_that_old() -> None:
    position = Position(6, {4: 10.0, 5: 50.0})
    assert position.after([], now=69.0, gap_seconds=60).gaps.keys() == {4, 5}
    assert position.after([], now=70.0, gap_seconds=60).gaps.keys() == {5}


def test_the_first_ids_of_an_empty_table_may_be_missing_too() -> None:
    assert Position().after([3], now=0.0, gap_seconds=60) == Position(3, {1: 0.0, 2: 0.0})
