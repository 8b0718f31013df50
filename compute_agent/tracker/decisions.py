"""Decision on what to do after an event in a pass: a pure function of state and event.

A start and a period are distinguished here and nowhere else. No I/O, no clock, no randomness: the
time is part of the event and a wait is an upper bound that the caller draws from.

    event                       at start                        in a period
    reshape needed, 1st call    RESHAPE                         NEXT_PERIOD, error, pending
    reshape needed, 2nd call    EXIT 2                          NEXT_PERIOD, error
    reshape failed              EXIT 2                          NEXT_PERIOD, error
    update rejected             EXIT 3                          NEXT_PERIOD, error
    generation conflict         RETRY 59 times, then EXIT 3     RETRY 3 times, then NEXT_PERIOD
    placement unavailable       BACK_OFF (EXIT 3 after the      BACK_OFF, warning once
                                start's time limit, if any)
    unauthorized                EXIT 3                          BACK_OFF, error every 10th time
    invalid configuration       EXIT 1                          NEXT_PERIOD, error
    completed but for a part    EXIT 1                          DONE, error
    identity conflict           EXIT 5                          NEXT_PERIOD, error
    assigned resource gone      EXIT 4                          (checked at start only)
    driver failed               EXIT 4                          NEXT_PERIOD, error with traceback
    driver not ready            NEXT_PERIOD, still a start      NEXT_PERIOD, warning
    node unknown                NEXT_PERIOD, still a start      NEXT_PERIOD, warning
    completed                   DONE, no start any more         DONE

Only the start of the agent ends it. For a node that came while others were reported the column of
the period holds where that of the start has EXIT.
"""

from __future__ import annotations

import logging
from enum import Enum, IntEnum

from msgspec import Struct
from msgspec.structs import replace

from compute_agent import errors
from compute_agent.state.files import NoSpace

MAX_TRIES = 4
"""Times that a pass is tried in all when another writer changes the same providers."""
MAX_TRIES_AT_START = 60
"""As often at a start, which nobody else can do: a storm of claims on the host passes by."""
LONGEST_WAIT_AFTER_CONFLICT = 4.0
"""Seconds: upper bound of the wait before one of them, so that they take two minutes."""
BACK_OFF_START = 1.0
"""Seconds: upper bound of the first wait for a placement that cannot be reached."""
SHORTEST_SPREAD = 1.0
"""Seconds: a shorter outage gathers too few to spread them."""
REFUSALS_PER_LOG = 10
REMINDER_AFTER = 3600.0
"""Seconds after which a condition that lasts is logged again."""


class ExitCode(IntEnum):
    """Status with which the daemon ends."""

    ASKED_TO_STOP = 0
    CONFIGURATION = 1
    RESHAPE_FAILED = 2
    PLACEMENT_REJECTED = 3
    DRIVER_FAILED = 4
    IDENTITY = 5


class EventKind(Enum):
    """What can happen in a pass."""

    RESHAPE_NEEDED = "a reshape is needed"
    RESHAPE_NEEDED_AGAIN = "the driver asked for a reshape while it was doing one"
    RESHAPE_FAILED = "the reshape failed"
    UPDATE_REJECTED = "placement rejected the update"
    CONFLICT = "another writer changed the same resource providers"
    PLACEMENT_UNAVAILABLE = "placement cannot be reached"
    PLACEMENT_UNAUTHORIZED = "placement does not let this agent in"
    INVALID_CONFIGURATION = "the configuration is contradictory"
    IDENTITY_CONFLICT = "the identity of this node is contradictory"
    ASSIGNED_RESOURCE_GONE = "what was given to an instance is gone"
    DRIVER_FAILED = "the driver failed unexpectedly"
    DRIVER_NOT_READY = "the driver is not ready"
    NODE_UNKNOWN = "the driver does not know the node"
    COMPLETED_IN_PART = "a part of the configuration cannot be applied"
    COMPLETED = "the pass completed"


class Action(Enum):
    """What the caller does next."""

    RESHAPE = "fetch the allocations, call the driver again, flush as a reshape"
    RETRY = "redo the pass after a short random wait"
    BACK_OFF = "wait, then redo the pass"
    NEXT_PERIOD = "leave this node as it is until the next period"
    EXIT = "end the process"
    DONE = "nothing is left to do"


class Event(Struct, frozen=True):
    """Something that happened at `at` (seconds of a monotonic clock).

    `subject` distinguishes two faults of the same kind, so that a new one is logged while an old
    one lasts. `retry_after` is what placement asked for, in seconds.
    """

    kind: EventKind
    at: float
    subject: str = ""
    retry_after: float | None = None


class WaitLimits(Struct, frozen=True):
    """Configured bounds, in seconds. `startup_placement_timeout` 0 means none.

    `spread`: over how long the first passes of a fleet are spread.
    """

    period: float
    startup_placement_timeout: float = 0.0
    spread: float = 0.0


class Fault(Struct, frozen=True):
    """A condition that lasts: since when, when it was last logged, how often it was seen."""

    kind: EventKind
    subject: str
    since: float
    logged_at: float
    seen_count: int = 1


class NodeState(Struct, frozen=True):
    """What the decisions about one node depend on.

    `startup` stays True until a pass of the node has completed. `tries` counts the tries of the
    pass in hand that ended in a conflict, `attempts` the waits since placement went away. `rejoins`
    is True while the node waits for its turn after placement came back. `is_late` is True for a
    node that came while others were reported.
    """

    started_at: float
    startup: bool = True
    reshape_pending: bool = False
    tries: int = 0
    attempts: int = 0
    rejoins: bool = False
    is_late: bool = False
    fault: Fault | None = None

    @property
    def is_agent_start(self) -> bool:
        """Whether the start of the node is that of the agent, which may end by it."""
        return self.startup and not self.is_late


class Decision(Struct, frozen=True):
    """What to do, and the state afterwards.

    :param wait: upper bound in seconds of the wait before RETRY and BACK_OFF: wait a time drawn
        uniformly from 0 to `wait`, but at least `wait_at_least`.
    :param log: level to log the event with, None to stay silent.
    :param ended_fault: the fault that is over, to be logged once.
    """

    action: Action
    state: NodeState
    exit_code: ExitCode | None = None
    wait: float = 0.0
    wait_at_least: float = 0.0
    log: int | None = None
    with_traceback: bool = False
    ended_fault: Fault | None = None


_FATAL_AT_START = {
    EventKind.RESHAPE_NEEDED_AGAIN: ExitCode.RESHAPE_FAILED,
    EventKind.RESHAPE_FAILED: ExitCode.RESHAPE_FAILED,
    EventKind.UPDATE_REJECTED: ExitCode.PLACEMENT_REJECTED,
    EventKind.PLACEMENT_UNAUTHORIZED: ExitCode.PLACEMENT_REJECTED,
    EventKind.INVALID_CONFIGURATION: ExitCode.CONFIGURATION,
    EventKind.COMPLETED_IN_PART: ExitCode.CONFIGURATION,
    EventKind.IDENTITY_CONFLICT: ExitCode.IDENTITY,
    EventKind.ASSIGNED_RESOURCE_GONE: ExitCode.DRIVER_FAILED,
    EventKind.DRIVER_FAILED: ExitCode.DRIVER_FAILED,
}

_LEVEL_IN_PERIOD = {
    EventKind.CONFLICT: logging.WARNING,
    EventKind.PLACEMENT_UNAVAILABLE: logging.WARNING,
    EventKind.DRIVER_NOT_READY: logging.WARNING,
    EventKind.NODE_UNKNOWN: logging.WARNING,
}


def classify(error: Exception) -> EventKind:
    """Return what an exception out of a pass means.

    Of several failures collected in one flush the one that decides is the one that a repetition
    cannot get past: an outage, then a refusal to let the agent in, then a rejected change.
    """
    if isinstance(error, errors.ResourceProviderSyncFailed) and error.failures:
        kinds = {classify(failure.error) for failure in error.failures}
        return next((kind for kind in _WORST_FIRST if kind in kinds), EventKind.UPDATE_REJECTED)
    for kind, types in _KINDS:
        if isinstance(error, types):
            return kind
    return EventKind.DRIVER_FAILED


_WORST_FIRST = (
    EventKind.PLACEMENT_UNAVAILABLE,
    EventKind.PLACEMENT_UNAUTHORIZED,
    EventKind.UPDATE_REJECTED,
    EventKind.CONFLICT,
)

_KINDS: tuple[tuple[EventKind, tuple[type[Exception], ...]], ...] = (
    # the narrower type first where one is derived from another
    (EventKind.RESHAPE_NEEDED, (errors.ReshapeNeeded,)),
    (EventKind.RESHAPE_FAILED, (errors.ReshapeFailed,)),
    (
        EventKind.CONFLICT,
        (errors.ResourceProviderUpdateConflict, errors.PlacementReshapeConflict),
    ),
    (EventKind.PLACEMENT_UNAVAILABLE, (errors.PlacementUnavailable,)),
    (EventKind.PLACEMENT_UNAUTHORIZED, (errors.PlacementUnauthorized,)),
    (EventKind.UPDATE_REJECTED, (errors.PlacementError,)),
    (EventKind.IDENTITY_CONFLICT, (errors.InvalidNodeConfiguration,)),
    # unlike a wrong option it passes, so the service manager starts the agent again
    (EventKind.DRIVER_FAILED, (NoSpace,)),
    (EventKind.INVALID_CONFIGURATION, (errors.InvalidConfiguration,)),
    (EventKind.DRIVER_NOT_READY, (errors.VirtDriverNotReady, errors.HypervisorUnavailable)),
    (EventKind.NODE_UNKNOWN, (errors.ComputeHostNotFound,)),
    (EventKind.ASSIGNED_RESOURCE_GONE, (errors.AssignedResourceNotFound,)),
)


def exit_code_of(error: Exception) -> ExitCode:
    """Return the status of a process that ends because of `error`."""
    return exit_code_for(classify(error))


def exit_code_for(kind: EventKind) -> ExitCode:
    """Return the status of a process that ends because of an event of this kind."""
    if kind is EventKind.PLACEMENT_UNAVAILABLE:
        return ExitCode.PLACEMENT_REJECTED
    if kind is EventKind.RESHAPE_NEEDED:
        return ExitCode.RESHAPE_FAILED
    return _FATAL_AT_START.get(kind, ExitCode.DRIVER_FAILED)


def turn_after_outage(state: NodeState, at: float, limits: WaitLimits) -> float:
    """Return the seconds over which to draw the first pass after an outage; 0: no wait is due.

    All nodes whose passes fell into the outage come when it ends. Drawn over as long as it lasted,
    or over `spread` after a longer one, they come no faster than they always do.
    """
    fault = state.fault
    if state.rejoins or fault is None or fault.kind is not EventKind.PLACEMENT_UNAVAILABLE:
        return 0.0
    bound = min(limits.spread, at - fault.since)
    return bound if bound >= SHORTEST_SPREAD else 0.0


def decide(state: NodeState, event: Event, limits: WaitLimits) -> Decision:
    """Return what to do after `event`, for a node in `state`."""
    kind = event.kind
    if kind is EventKind.COMPLETED:
        after = replace(_settle(state), fault=None)
        return Decision(Action.DONE, after, ended_fault=state.fault)
    if kind is EventKind.RESHAPE_NEEDED and state.startup:
        return Decision(Action.RESHAPE, state, log=logging.INFO)
    if kind is EventKind.CONFLICT:
        return _after_conflict(state, event)
    if kind is EventKind.PLACEMENT_UNAVAILABLE:
        return _after_outage(state, event, limits)
    if state.is_agent_start and kind in _FATAL_AT_START:
        is_traced = kind is EventKind.DRIVER_FAILED
        return replace(_exit(state, _FATAL_AT_START[kind]), with_traceback=is_traced)
    if kind is EventKind.PLACEMENT_UNAUTHORIZED:
        return _after_refusal(state, event, limits)
    if kind is EventKind.COMPLETED_IN_PART:
        return _lasting(Action.DONE, _settle(state), event)
    return _lasting(Action.NEXT_PERIOD, replace(state, tries=0), event)


def _exit(state: NodeState, code: ExitCode) -> Decision:
    return Decision(Action.EXIT, state, exit_code=code, log=logging.CRITICAL)


def _settle(state: NodeState) -> NodeState:
    return replace(state, startup=False, reshape_pending=False, tries=0, attempts=0, rejoins=False)


def _after_conflict(state: NodeState, event: Event) -> Decision:
    tries = state.tries + 1
    if tries < (MAX_TRIES_AT_START if state.startup else MAX_TRIES):
        # the first repetition is at once: the other writer is most likely done
        return Decision(
            Action.RETRY,
            replace(state, tries=tries),
            wait=min(2.0 * (tries - 1), LONGEST_WAIT_AFTER_CONFLICT),
            log=logging.DEBUG,
        )
    if state.is_agent_start:
        return _exit(state, ExitCode.PLACEMENT_REJECTED)
    return _lasting(Action.NEXT_PERIOD, replace(state, tries=0), event)


def _after_outage(state: NodeState, event: Event, limits: WaitLimits) -> Decision:
    timeout = limits.startup_placement_timeout
    if state.is_agent_start and timeout and event.at - state.started_at >= timeout:
        return _exit(state, ExitCode.PLACEMENT_REJECTED)
    return _backing_off(state, event, limits)


def _after_refusal(state: NodeState, event: Event, limits: WaitLimits) -> Decision:
    decision = _backing_off(state, event, limits)
    fault = decision.state.fault
    if fault is None or fault.seen_count == 1:
        return decision
    is_due = fault.seen_count % REFUSALS_PER_LOG == 0
    return replace(decision, log=logging.ERROR if is_due else None)


def _backing_off(state: NodeState, event: Event, limits: WaitLimits) -> Decision:
    bound = min(limits.period, BACK_OFF_START * 2.0 ** min(state.attempts, 32))
    after = replace(state, tries=0, attempts=state.attempts + 1, rejoins=False)
    return replace(
        _lasting(Action.BACK_OFF, after, event),
        wait=max(bound, event.retry_after or 0.0),
        wait_at_least=event.retry_after or 0.0,
    )


def _lasting(action: Action, state: NodeState, event: Event) -> Decision:
    """Remember the fault; log it when it is new and once per `REMINDER_AFTER`."""
    level = _LEVEL_IN_PERIOD.get(event.kind, logging.ERROR)
    is_pending = state.reshape_pending or event.kind is EventKind.RESHAPE_NEEDED
    fault = state.fault
    if fault is None or (fault.kind, fault.subject) != (event.kind, event.subject):
        fault = Fault(event.kind, event.subject, since=event.at, logged_at=event.at)
        is_due = True
    else:
        is_due = event.at - fault.logged_at >= REMINDER_AFTER
        logged_at = event.at if is_due else fault.logged_at
        fault = replace(fault, seen_count=fault.seen_count + 1, logged_at=logged_at)
    return Decision(
        action,
        replace(state, fault=fault, reshape_pending=is_pending),
        log=level if is_due else None,
        with_traceback=event.kind is EventKind.DRIVER_FAILED,
    )
