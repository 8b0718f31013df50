"""The arithmetic of one inventory."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement_server.store.providers.capacity import reserved_is_valid, single_precision, usable

totals = st.integers(1, 2**31 - 1)
ratios = st.floats(-1000, 3.40282e38, allow_nan=False)


@given(totals, st.integers(0, 2**31 - 1), st.floats(-1000, 1e6), st.integers(0, 2**40))
def test_a_use_is_within_the_bound_exactly_when_it_is_within_the_fractional_capacity(
    total: int, reserved: int, ratio: float, use: int
) -> None:
    assert (use <= usable(total, reserved, ratio)) == (use <= (total - reserved) * ratio)


@given(totals, ratios)
def test_the_bound_fits_a_64_bit_column_at_any_ratio(total: int, ratio: float) -> None:
    assert -(2**63) <= usable(total, 0, ratio) < 2**63


@pytest.mark.parametrize(
    ("total", "reserved", "ratio", "before_1_26", "since_1_26"),
    [
        (10, 0, 1.0, True, True),
        (10, 10, 1.0, False, True),
        (10, 11, 1.0, False, False),
        (10, 9, 0.5, False, True),
        (10, 0, 0.0, False, True),
        (10, 0, -1.0, False, False),
        (10, 12, -1.0, True, True),
        # cut towards zero: -0.5 counts as nothing, which is not negative
        (10, 11, 0.5, False, True),
    ],
)
def test_reserved_is_judged_by_the_whole_part_of_the_capacity(
    total: int, reserved: int, ratio: float, before_1_26: bool, since_1_26: bool
) -> None:
    assert reserved_is_valid(total, reserved, ratio, may_equal_total=False) is before_1_26
    assert reserved_is_valid(total, reserved, ratio, may_equal_total=True) is since_1_26


def test_single_precision_gives_the_six_digits_that_mysql_shows() -> None:
    assert single_precision(16.1) == 16.1
    assert single_precision(1.23456789) == 1.23457
    assert Fraction(single_precision(0.1)) == Fraction(0.1)
