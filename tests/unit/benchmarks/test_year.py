"""Growth over a year of a fleet: what counts as such."""

from __future__ import annotations

import pytest

from benchmarks.year.series import Bound, Series


def series(bound: Bound, *values: float) -> Series:
    points = [((number + 1) / len(values), value) for number, value in enumerate(values)]
    return Series("some", bound, points)


def test_growth_is_what_the_later_part_of_a_year_would_add_to_a_whole_one() -> None:
    steady = series(Bound(amount=1), 0, 20, 40, 60, 80, 100, 101, 102, 102, 101)
    assert steady.holds
    growing = series(Bound(amount=9), *range(10, 110, 10))
    assert growing.growth == pytest.approx(100)
    assert not growing.holds
    assert series(Bound(share=2), *range(10, 110, 10)).holds
    assert series(Bound(), *range(100, 0, -10)).holds
