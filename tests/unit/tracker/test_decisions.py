"""Every row of the table of what happens at start and in a period."""

import logging

import pytest
from msgspec.structs import replace

from compute_agent import errors
from compute_agent.tracker.decisions import (
    Action,
    Decision,
    Event,
    EventKind,
    ExitCode,
    NodeState,
    WaitLimits,
    classify,
    decide,
)

LIMITS = WaitLimits(period=60.0)
STARTING = NodeState(started_at=100.0)
RUNNING = NodeState(started_at=100.0, startup=False)
LATE = NodeState(started_at=100.0, is_late=True)


def after(state: NodeState, kind: EventKind, at: float = 100.0, **fields) -> Decision:
    return decide(state, Event(kind, at, **fields), LIMITS)


def repeatedly(state: NodeState, kind: EventKind, times: int):
    decisions = []
    for turn in range(times):
        decision = after(state, kind, at=100.0 + turn * 60.0)
        state = decision.state
        decisions.append(decision)
    return decisions


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (EventKind.RESHAPE_NEEDED_AGAIN, 2),
        (EventKind.RESHAPE_FAILED, 2),
        (EventKind.UPDATE_REJECTED, 3),
        (EventKind.PLACEMENT_UNAUTHORIZED, 3),
        (EventKind.INVALID_CONFIGURATION, 1),
        (EventKind.COMPLETED_IN_PART, 1),
        (EventKind.IDENTITY_CONFLICT, 5),
        (EventKind.ASSIGNED_RESOURCE_GONE, 4),
        (EventKind.DRIVER_FAILED, 4),
    ],
)
def test_what_is_fatal_at_start_ends_with_its_code_and_a_critical_line(kind, code):
    decision = after(STARTING, kind)
    assert decision.action is Action.EXIT
    assert decision.exit_code == code
    assert decision.log == logging.CRITICAL


@pytest.mark.parametrize("kind", list(EventKind))
def test_a_node_that_came_while_others_were_reported_never_ends_the_agent(kind):
    limits = WaitLimits(period=60.0, startup_placement_timeout=30.0)
    state = LATE
    for at in range(100, 300):
        decision = decide(state, Event(kind, float(at)), limits)
        assert decision.exit_code is None
        assert decision.action is not Action.EXIT
        state = decision.state
    assert (decision.action is Action.RESHAPE) is (kind is EventKind.RESHAPE_NEEDED)


PASSING = {
    *(EventKind.COMPLETED, EventKind.CONFLICT, EventKind.PLACEMENT_UNAVAILABLE),
    *(EventKind.DRIVER_NOT_READY, EventKind.NODE_UNKNOWN),
}
"""Kinds that may end by themselves, and are not an error at first."""


@pytest.mark.parametrize("kind", list(EventKind))
@pytest.mark.parametrize("startup", [True, False])
def test_nothing_is_ever_fatal_in_a_period_and_only_a_completed_pass_ends_a_start(kind, startup):
    decision = after(replace(RUNNING, startup=startup, tries=1), kind)
    if not startup:
        assert decision.state.tries == (2 if kind is EventKind.CONFLICT else 0)
        assert decision.action is not Action.EXIT
        assert decision.action is not Action.RESHAPE
        assert (decision.log == logging.ERROR) is (kind not in PASSING)
    if kind is not EventKind.COMPLETED:
        assert decision.state.startup is startup
    assert (decision.exit_code is not None) == (decision.action is Action.EXIT)


def test_a_reshape_is_done_at_start_and_announced():
    decision = after(STARTING, EventKind.RESHAPE_NEEDED)
    assert decision.action is Action.RESHAPE
    assert decision.log == logging.INFO


def test_a_reshape_needed_in_a_period_stays_pending_until_a_pass_completes():
    decision = after(RUNNING, EventKind.RESHAPE_NEEDED)
    waiting = after(decision.state, EventKind.DRIVER_NOT_READY)
    assert decision.state.reshape_pending
    assert waiting.state.reshape_pending
    assert not after(waiting.state, EventKind.COMPLETED).state.reshape_pending


def test_a_conflict_is_tried_for_two_minutes_at_start_then_fatal():
    decisions = repeatedly(STARTING, EventKind.CONFLICT, 60)
    assert [d.action for d in decisions] == [Action.RETRY] * 59 + [Action.EXIT]
    assert [d.wait for d in decisions[:5]] == [0.0, 2.0, 4.0, 4.0, 4.0]
    assert sum(d.wait for d in decisions) / 2 == pytest.approx(120, rel=0.1)
    assert decisions[-1].exit_code is ExitCode.PLACEMENT_REJECTED


def test_a_conflict_is_tried_four_times_in_a_period_then_left_with_a_warning():
    decisions = repeatedly(RUNNING, EventKind.CONFLICT, 5)
    assert [d.action for d in decisions[:4]] == [Action.RETRY] * 3 + [Action.NEXT_PERIOD]
    assert decisions[3].log == logging.WARNING
    assert decisions[3].state.tries == 0, "the next pass has its own tries"


@pytest.mark.parametrize("state", [STARTING, RUNNING])
def test_an_outage_backs_off_exponentially_up_to_the_period(state):
    decisions = repeatedly(state, EventKind.PLACEMENT_UNAVAILABLE, 9)
    assert {d.action for d in decisions} == {Action.BACK_OFF}
    assert [d.wait for d in decisions] == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert {d.wait_at_least for d in decisions} == {0}


def test_a_very_long_outage_does_not_overflow():
    assert after(replace(RUNNING, attempts=10**6), EventKind.PLACEMENT_UNAVAILABLE).wait == 60


def test_an_outage_is_logged_once_when_it_begins_once_an_hour_and_when_it_ends():
    decisions = repeatedly(RUNNING, EventKind.PLACEMENT_UNAVAILABLE, 62)
    logged = [turn for turn, d in enumerate(decisions) if d.log == logging.WARNING]
    assert logged == [0, 60]
    ended = after(decisions[-1].state, EventKind.COMPLETED, at=9999.0).ended_fault
    assert ended is not None
    assert ended.since == 100.0
    assert ended.kind is EventKind.PLACEMENT_UNAVAILABLE


def test_placement_is_waited_for_as_long_as_it_asks():
    decision = after(RUNNING, EventKind.PLACEMENT_UNAVAILABLE, retry_after=90.0)
    assert decision.wait_at_least == 90.0
    assert decision.wait >= 90.0


def test_the_time_limit_of_a_start_makes_an_outage_fatal():
    limits = WaitLimits(period=60.0, startup_placement_timeout=30.0)
    early = decide(STARTING, Event(EventKind.PLACEMENT_UNAVAILABLE, 129.0), limits)
    late = decide(early.state, Event(EventKind.PLACEMENT_UNAVAILABLE, 130.0), limits)
    running = decide(RUNNING, Event(EventKind.PLACEMENT_UNAVAILABLE, 9999.0), limits)
    assert early.action is Action.BACK_OFF
    assert late.action is Action.EXIT
    assert late.exit_code is ExitCode.PLACEMENT_REJECTED
    assert running.action is Action.BACK_OFF


def test_a_refusal_in_a_period_is_an_error_once_and_then_every_tenth_time():
    decisions = repeatedly(RUNNING, EventKind.PLACEMENT_UNAUTHORIZED, 21)
    assert {d.action for d in decisions} == {Action.BACK_OFF}
    logged = [turn + 1 for turn, d in enumerate(decisions) if d.log == logging.ERROR]
    assert logged == [1, 10, 20]


def test_a_part_that_cannot_be_applied_in_a_period_does_not_undo_the_rest_of_the_pass():
    decisions = repeatedly(replace(RUNNING, attempts=3), EventKind.COMPLETED_IN_PART, 2)
    assert {d.action for d in decisions} == {Action.DONE}
    assert [d.log for d in decisions] == [logging.ERROR, None]
    assert decisions[1].state.attempts == 0
    assert after(decisions[1].state, EventKind.COMPLETED).ended_fault is not None


@pytest.mark.parametrize("kind", [EventKind.DRIVER_NOT_READY, EventKind.NODE_UNKNOWN])
def test_a_driver_that_is_not_ready_leaves_the_start_a_start(kind):
    decision = after(STARTING, kind)
    assert decision.action is Action.NEXT_PERIOD
    assert decision.log == logging.WARNING
    assert decision.state.startup


@pytest.mark.parametrize("state", [STARTING, RUNNING])
def test_a_failed_driver_is_logged_with_its_traceback(state):
    assert after(state, EventKind.DRIVER_FAILED).with_traceback
    assert not after(state, EventKind.UPDATE_REJECTED).with_traceback


def test_a_new_fault_of_the_same_kind_is_logged_while_another_lasts():
    first = after(RUNNING, EventKind.UPDATE_REJECTED, subject="cell 0")
    same = after(first.state, EventKind.UPDATE_REJECTED, subject="cell 0")
    other = after(same.state, EventKind.UPDATE_REJECTED, subject="cell 1")
    assert first.log == logging.ERROR
    assert same.log is None
    assert other.log == logging.ERROR


def test_a_completed_pass_ends_the_start_and_forgets_what_was_wrong():
    troubled = after(STARTING, EventKind.PLACEMENT_UNAVAILABLE).state
    decision = after(troubled, EventKind.COMPLETED)
    assert decision.action is Action.DONE
    assert decision.state == replace(RUNNING, started_at=100.0)


def failed(*causes: Exception) -> errors.ResourceProviderSyncFailed:
    return errors.ResourceProviderSyncFailed(
        [errors.SyncFailure("u", "n", "traits", cause) for cause in causes]
    )


CONFLICT = errors.ResourceProviderUpdateConflict("x")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (errors.ReshapeNeeded(), EventKind.RESHAPE_NEEDED),
        (errors.ReshapeFailed("x"), EventKind.RESHAPE_FAILED),
        (errors.ResourceProviderUpdateFailed("x"), EventKind.UPDATE_REJECTED),
        (errors.InventoryInUse("x"), EventKind.UPDATE_REJECTED),
        (errors.PlacementTooOld("x"), EventKind.UPDATE_REJECTED),
        (errors.PlacementError("x"), EventKind.UPDATE_REJECTED),
        (CONFLICT, EventKind.CONFLICT),
        (errors.PlacementReshapeConflict("x"), EventKind.CONFLICT),
        (errors.PlacementUnavailable("x"), EventKind.PLACEMENT_UNAVAILABLE),
        (errors.PlacementAPIConnectFailure("x"), EventKind.PLACEMENT_UNAVAILABLE),
        (errors.PlacementUnauthorized("x"), EventKind.PLACEMENT_UNAUTHORIZED),
        (errors.InvalidConfiguration("x"), EventKind.INVALID_CONFIGURATION),
        (errors.ProviderConfigConflict("x"), EventKind.INVALID_CONFIGURATION),
        (errors.InvalidNodeConfiguration("x"), EventKind.IDENTITY_CONFLICT),
        (errors.VirtDriverNotReady("x"), EventKind.DRIVER_NOT_READY),
        (errors.HypervisorUnavailable("x"), EventKind.DRIVER_NOT_READY),
        (errors.ComputeHostNotFound("x"), EventKind.NODE_UNKNOWN),
        (errors.InvalidInput("x"), EventKind.DRIVER_FAILED),
        (errors.AssignedResourceNotFound("x"), EventKind.ASSIGNED_RESOURCE_GONE),
        (KeyError("x"), EventKind.DRIVER_FAILED),
        (failed(errors.InvalidInventory("x"), CONFLICT), EventKind.UPDATE_REJECTED),
        (failed(CONFLICT), EventKind.CONFLICT),
        (
            failed(CONFLICT, errors.PlacementUnavailable("x"), errors.InventoryInUse("x")),
            EventKind.PLACEMENT_UNAVAILABLE,
        ),
        (failed(CONFLICT, errors.PlacementUnauthorized("x")), EventKind.PLACEMENT_UNAUTHORIZED),
    ],
)
def test_an_exception_means_one_kind_of_event(error, kind):
    assert classify(error) is kind
