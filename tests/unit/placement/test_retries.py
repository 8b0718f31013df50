"""Retries: how many, and after which waits; nothing here sleeps."""

import random

import pytest

from compute_agent import errors
from compute_agent.placement.connection import Retries
from tests.fixtures.clocks import WaitingClock


@pytest.fixture
def clock() -> WaitingClock:
    return WaitingClock()


def failing(error: Exception):
    calls = []

    def attempt() -> str:
        calls.append(1)
        raise error

    return attempt, calls


@pytest.mark.parametrize(
    "error", [errors.PlacementUnauthorized("x"), errors.ResourceProviderUpdateConflict("x")]
)
def test_only_unavailability_is_waited_out(clock, error):
    attempt, calls = failing(error)
    with pytest.raises(type(error)):
        Retries(clock).while_unavailable(attempt)
    assert len(calls) == 1


@pytest.mark.parametrize("seed", range(5))
def test_a_conflict_is_tried_four_times_the_second_at_once(clock, seed):
    attempt, calls = failing(errors.ResourceProviderUpdateConflict("x"))
    with pytest.raises(errors.ResourceProviderUpdateConflict):
        Retries(clock, random.Random(seed)).while_conflicting(attempt)
    assert len(calls) == 4
    second, third = clock.waits
    assert 0 <= second <= 2
    assert 0 <= third <= 4


def test_jitter_stays_within_its_share():
    retries = Retries(random=random.Random(1))
    values = [retries.with_jitter(300, 0.2) for _ in range(100)]
    assert 240 <= min(values) < 270
    assert 330 < max(values) <= 360
