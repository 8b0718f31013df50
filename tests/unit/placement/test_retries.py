"""Retries: how many, and after which waits; nothing here sleeps."""

import random

import pytest

from compute_agent import errors
from compute_agent.placement.connection import Retries


class Waits:
    def __init__(self) -> None:
        self.seconds: list[float] = []

    def monotonic(self) -> float:
        return sum(self.seconds)

    def sleep(self, seconds: float) -> None:
        self.seconds.append(seconds)


@pytest.fixture
def waits() -> Waits:
    return Waits()


def failing(error: Exception, times: int = 10**6):
    calls = []

    def attempt() -> str:
        calls.append(1)
        if len(calls) <= times:
            raise error
        return "done"

    return attempt, calls


@pytest.mark.parametrize("seed", range(5))
def test_an_unavailable_placement_is_asked_three_times(waits, seed):
    retries = Retries(waits, random.Random(seed))
    attempt, calls = failing(errors.PlacementAPIConnectFailure("x"))
    with pytest.raises(errors.PlacementAPIConnectFailure):
        retries.while_unavailable(attempt)
    assert len(calls) == 3
    first, second = waits.seconds
    assert 0.375 <= first <= 0.625
    assert 0.75 <= second <= 1.25


def test_the_first_answer_ends_the_waiting(waits):
    attempt, calls = failing(errors.PlacementUnavailable("x"), times=1)
    assert Retries(waits).while_unavailable(attempt) == "done"
    assert len(calls) == 2


@pytest.mark.parametrize(
    "error", [errors.PlacementUnauthorized("x"), errors.ResourceProviderUpdateConflict("x")]
)
def test_only_unavailability_is_waited_out(waits, error):
    attempt, calls = failing(error)
    with pytest.raises(type(error)):
        Retries(waits).while_unavailable(attempt)
    assert len(calls) == 1


def test_the_wait_is_as_long_as_placement_asked_for(waits):
    attempt, _ = failing(errors.PlacementUnavailable("x", retry_after=4.0), times=2)
    Retries(waits).while_unavailable(attempt)
    assert waits.seconds == [4.0, 4.0]


def test_a_wait_of_minutes_is_not_made_here(waits):
    attempt, calls = failing(errors.PlacementUnavailable("x", retry_after=60.0))
    with pytest.raises(errors.PlacementUnavailable):
        Retries(waits).while_unavailable(attempt)
    assert len(calls) == 1


@pytest.mark.parametrize("seed", range(5))
def test_a_conflict_is_tried_four_times_the_second_at_once(waits, seed):
    attempt, calls = failing(errors.ResourceProviderUpdateConflict("x"))
    with pytest.raises(errors.ResourceProviderUpdateConflict):
        Retries(waits, random.Random(seed)).while_conflicting(attempt)
    assert len(calls) == 4
    second, third = waits.seconds
    assert 0 <= second <= 2
    assert 0 <= third <= 4


def test_jitter_stays_within_its_share():
    retries = Retries(random=random.Random(1))
    values = [retries.with_jitter(300, 0.2) for _ in range(100)]
    assert 240 <= min(values) < 270
    assert 330 < max(values) <= 360
