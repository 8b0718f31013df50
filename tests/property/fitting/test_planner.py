"""The planner against trying out every way there is: feasibility, rules, and all criteria."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from compute_agent.fitting.planner import plan
from tests.property.fitting import drawn
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


@pytest.mark.parametrize(
    "seeds", [range(60), range(70, 200), (269, 279, 332, 341, 477, 554, 1685, 1706)]
)
def test_proofs_for_hosts_of_64_unlike_cells_are_short(seeds):
    for seed in seeds:
        rng = random.Random(seed)
        host = drawn.a_large_host(rng)
        guest = drawn.a_large_guest(rng)
        # the budget for the best plan is 2000 of them; the limit is 20,000
        assert plan(host, guest).steps <= 4000, seed
        host, short = drawn.short_of_memory(rng, host, guest)
        assert plan(host, replace(short, wishes=guest.wishes)).steps <= 4000, seed
