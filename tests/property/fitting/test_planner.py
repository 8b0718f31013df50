"""The planner against trying out every way there is: feasibility, rules, and all criteria."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.fitting.comparison import compare

CHUNK = 2500
seeds = st.integers(min_value=20_000, max_value=2**32)


@pytest.mark.parametrize("chunk", range(8))
def test_twenty_thousand_hosts_and_guests_agree_with_the_brute_force(chunk):
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        try:
            compare(seed)
        except AssertionError as error:
            pytest.fail(f"seed {seed}: {error}")


@given(seeds)
@settings(max_examples=200)
def test_other_hosts_and_guests_agree_in_every_run(seed):
    compare(seed)
