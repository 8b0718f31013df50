"""Demands of the fleet benchmark on agents that are left alone."""

from __future__ import annotations

import random

import pytest

from benchmarks.agent.fleet import FULL, QUICK
from benchmarks.agent.quiet_phase import LATE, QuietPhase
from benchmarks.agent.simulated_agents import PERIOD

AGENTS = 1000
FORMS = pytest.mark.parametrize("seconds", [QUICK.steady, FULL.steady, 90.0])


def phase(
    seconds: float,
    *,
    each: float = 1.0,
    cycle: float = PERIOD + 0.01,
    at_work: int = 0,
    late: float = 0.01,
) -> QuietPhase:
    """A fleet whose agents began at random and pass every `cycle` seconds, as late as told."""
    rng = random.Random("fleet")
    passes = {}
    for number in range(AGENTS):
        first = rng.uniform(0.0, cycle)
        passes[str(number)] = 1 + int((seconds - first) // cycle) if first < seconds else 0
    requests = round(each * sum(passes.values())) + at_work
    return QuietPhase(AGENTS, seconds, PERIOD, requests, passes, at_work, late)


@FORMS
@pytest.mark.parametrize("late", [2.0, PERIOD / 10, PERIOD / 2])
def test_a_machine_that_begins_passes_late_is_no_fault_of_the_agents(
    seconds: float, late: float
) -> None:
    assert phase(seconds, cycle=PERIOD + late, late=late).holds
    assert not phase(seconds, cycle=PERIOD / 2, late=late).holds
    assert not phase(seconds, cycle=PERIOD + late, late=late, each=1.5).holds


@FORMS
def test_one_request_in_a_pass_and_one_pass_in_a_period_hold(seconds: float) -> None:
    quiet = phase(seconds)
    assert quiet.holds, quiet.note()
    assert phase(seconds, at_work=7).holds, "passes at work at the end have sent theirs"


@FORMS
@pytest.mark.parametrize("each", [1.02, 1.5, 2.0])
def test_more_requests_than_passes_fail_in_the_short_form_too(seconds: float, each: float) -> None:
    assert not phase(seconds, each=each).holds


@FORMS
@pytest.mark.parametrize("cycle", [PERIOD / 2, PERIOD * 0.9, PERIOD * 1.1, PERIOD * 2])
def test_agents_that_pass_too_often_or_too_rarely_fail(seconds: float, cycle: float) -> None:
    assert not phase(seconds, cycle=cycle).holds


@pytest.mark.parametrize("seconds", [QUICK.steady, FULL.steady])
def test_a_single_agent_that_never_comes_fails(seconds: float) -> None:
    quiet = phase(seconds)
    there = {name: number for name, number in quiet.passes.items() if name != "7"}
    lost = QuietPhase(AGENTS, seconds, PERIOD, sum(there.values()), there, 0)
    assert not lost.holds


def test_the_short_form_is_long_enough_for_every_agent_to_come() -> None:
    assert QUICK.steady >= PERIOD + LATE


def test_the_note_says_what_is_allowed_and_why() -> None:
    note = phase(QUICK.steady, at_work=3).note()
    for word in ("at most", "repeats", "3 of passes at work", "passes per agent and period"):
        assert word in note
