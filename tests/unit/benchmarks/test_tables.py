"""Rows of benchmarks beside what they are compared with, and growth."""

from __future__ import annotations

import pytest

from benchmarks.floors.table import Row
from benchmarks.growth.plots import exponent


@pytest.mark.parametrize(
    ("row", "holds"),
    [
        (Row("claim", "ms", 2.0, floor=1.0, most=2.0), True),
        (Row("claim", "ms", 2.1, floor=1.0, most=2.0), False),
        (Row("start", "s", 0.9, most=1.0), True),
        (Row("rate", "1/s", 50.0, floor=100.0, least=0.6), False),
        (Row("search", "ms", 1.0, published=100.0, times=30.0), True),
        (Row("search", "ms", 5.0, published=100.0, times=30.0), False),
        (Row("search", "ms", 5.0, times=30.0), False),
        (Row("search", "ms", 1.0, verdict="FAILS: 3 candidates, not 4"), False),
        (Row("search", "ms", 1.0), True),
    ],
)
def test_a_row_holds_when_all_of_its_bounds_do(row: Row, holds: bool) -> None:
    assert row.holds == holds
    assert ("FAILS" in row.cells()[-1]) == (not holds)


def test_a_short_run_judges_by_ratios_with_room_for_noise() -> None:
    assert Row("claim", "ms", 2.9, floor=1.0, most=2.0).for_short_run().holds
    assert not Row("claim", "ms", 3.1, floor=1.0, most=2.0).for_short_run().holds
    assert Row("start", "s", 9.0, most=1.0).for_short_run().holds


def test_the_exponent_of_growth_is_the_slope_of_logarithms() -> None:
    assert exponent({1: 3.0, 2: 6.0, 4: 12.0}) == pytest.approx(1.0)
    assert exponent({1: 3.0, 2: 3.0, 4: 3.0}) == pytest.approx(0.0)
    assert exponent({1: 1.0, 2: 4.0, 4: 16.0}) == pytest.approx(2.0)
