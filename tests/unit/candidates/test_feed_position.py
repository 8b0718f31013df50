"""The position up to which change records have been read, without a database."""

from __future__ import annotations

from placement_server.store.changes.cursor import Gap, Position
from placement_server.store.changes.snapshot import ChangeRow


def test_ids_in_order_leave_no_gaps() -> None:
    assert Position(3).after([4, 5], now=0.0, gap_seconds=60) == Position(5)


def test_missing_ids_are_remembered_since_they_were_first_missed() -> None:
    position = Position(3).after([6], now=10.0, gap_seconds=60)
    assert position == Position(6, (Gap(4, 6, 10.0),))
    position = position.after([8], now=20.0, gap_seconds=60)
    assert position == Position(8, (Gap(4, 6, 10.0), Gap(7, 8, 20.0)))


def test_an_id_that_appears_late_is_a_gap_no_more() -> None:
    position = Position(9, (Gap(4, 9, 10.0),)).after([6], now=20.0, gap_seconds=60)
    assert position == Position(9, (Gap(4, 6, 10.0), Gap(7, 9, 10.0)))
    assert position.after([8, 7, 4, 5], now=20.0, gap_seconds=60) == Position(9)


def test_a_gap_is_given_up_once_no_transaction_can_be_that_old() -> None:
    position = Position(6, (Gap(4, 5, 10.0), Gap(5, 6, 50.0)))
    assert position.after([], now=69.0, gap_seconds=60).missing_ids(9) == [4, 5]
    assert position.after([], now=70.0, gap_seconds=60).missing_ids(9) == [5]


def test_the_first_ids_of_an_empty_table_may_be_missing_too() -> None:
    assert Position().after([3], now=0.0, gap_seconds=60) == Position(3, (Gap(1, 3, 0.0),))


def test_a_leap_of_millions_of_ids_is_one_gap() -> None:
    position = Position(5).after([20_000_000], now=0.0, gap_seconds=60)
    assert position.gaps == (Gap(6, 20_000_000, 0.0),)
    assert position.missing_ids(300) is None
    assert position.new_in([ChangeRow(id=1_000, root_id=1, kind=0, write_id=1)])
