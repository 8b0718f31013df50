"""A fleet after an outage of placement: everybody comes back, and not all at once."""

import random
from collections import Counter

import pytest
from msgspec.structs import replace

from compute_agent.tracker.decisions import (
    Action,
    Event,
    EventKind,
    Fault,
    NodeState,
    WaitLimits,
    decide,
    turn_after_outage,
)

PERIOD = 60.0
LIMITS = WaitLimits(PERIOD, spread=60.0)
AWAY = Fault(EventKind.PLACEMENT_UNAVAILABLE, "", since=100.0, logged_at=100.0)


@pytest.mark.parametrize(
    ("now", "spread", "seconds"),
    [(110.0, 60.0, 10.0), (400.0, 60.0, 60.0), (400.0, 0.0, 0.0), (100.5, 60.0, 0.0)],
)
def test_the_first_pass_is_drawn_over_the_outage_but_no_longer_than_configured(
    now, spread, seconds
):
    state = NodeState(started_at=0.0, fault=AWAY)
    assert turn_after_outage(state, now, WaitLimits(PERIOD, spread=spread)) == seconds


def test_there_is_no_turn_to_wait_for_without_an_outage_or_when_it_has_come():
    assert turn_after_outage(NodeState(0.0), 400.0, LIMITS) == 0.0
    other = replace(AWAY, kind=EventKind.DRIVER_NOT_READY)
    assert turn_after_outage(NodeState(0.0, fault=other), 400.0, LIMITS) == 0.0
    assert turn_after_outage(NodeState(0.0, fault=AWAY, rejoins=True), 400.0, LIMITS) == 0.0


def test_an_outage_that_goes_on_after_all_gives_a_new_turn():
    state = NodeState(0.0, startup=False, fault=AWAY, rejoins=True)
    after = decide(state, Event(EventKind.PLACEMENT_UNAVAILABLE, at=120.0), LIMITS).state
    assert turn_after_outage(after, 160.0, LIMITS) == 60.0
    done = decide(after, Event(EventKind.COMPLETED, at=130.0), LIMITS).state
    assert turn_after_outage(done, 160.0, LIMITS) == 0.0


def passes_per_second(agents: int, outage: float, *, startup: bool) -> tuple[Counter[int], int]:
    """Let a fleet live through an outage from second 0 on.

    :returns: passes that reached placement by second after its end, and agents that came back
        within two periods of it.
    """
    rng = random.Random(1)
    passes: Counter[int] = Counter()
    back = 0
    for _ in range(agents):
        state = NodeState(started_at=0.0, startup=startup)
        due = rng.uniform(0.0, 0.1 if startup else PERIOD)
        while due < outage + 2 * PERIOD:
            if due < outage:
                event = Event(EventKind.PLACEMENT_UNAVAILABLE, at=due)
                decision = decide(state, event, LIMITS)
                assert decision.action is Action.BACK_OFF
                state = decision.state
                due += rng.uniform(0.0, decision.wait)
                continue
            turn = turn_after_outage(state, due, LIMITS)
            if turn:
                state = replace(state, rejoins=True)
                due += rng.uniform(0.0, turn)
                continue
            passes[int(due - outage)] += 1
            back += state.fault is not None
            state = decide(state, Event(EventKind.COMPLETED, at=due), LIMITS).state
            due += PERIOD
    return passes, back


@pytest.mark.parametrize(
    ("outage", "startup"), [(5.0, False), (60.0, False), (600.0, False), (60.0, True)]
)
def test_after_an_outage_a_fleet_comes_no_faster_than_twice_its_usual_pace(outage, startup):
    agents = 3000
    passes, back = passes_per_second(agents, outage, startup=startup)
    assert max(passes.values()) < 2 * agents / PERIOD
    if startup:
        assert back == agents, "all of them come back within two periods"
