"""A pass and one try of it: what it came to, how that is logged, and what can be done about it."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from compute_agent import errors
from compute_agent.daemon.trouble import Trouble
from compute_agent.tracker import decisions
from compute_agent.tracker.decisions import Decision, EventKind, Fault
from compute_agent.tracker.passes.node_pass import ReshapeNeededAgain
from compute_agent.tracker.status import PassOutcome

if TYPE_CHECKING:
    from compute_agent.placement.connection import Tally
    from compute_agent.tracker.node import Node

LOG = logging.getLogger(__name__)

REMEDIES = {
    EventKind.RESHAPE_NEEDED: "Nothing was changed for this node. Restart the agent to move its "
    "inventory and allocations, or stop it and run `compute-manage placement "
    "migrate_compute_inventory`.",
    EventKind.RESHAPE_FAILED: "Placement holds the old state. Remove the cause, start again, or "
    "run `compute-manage placement migrate_compute_inventory --dry-run` to see the plan.",
    EventKind.UPDATE_REJECTED: "What placement accepted is in place, the rest is tried again in "
    "the next pass. `compute-agent plan` shows what is missing.",
    EventKind.PLACEMENT_UNAVAILABLE: "The agent goes on and reports when placement answers again.",
    EventKind.PLACEMENT_UNAUTHORIZED: "The user is that of group [placement]; `compute-agent "
    "doctor` looks for the reason.",
    EventKind.INVALID_CONFIGURATION: "Nothing is reported for this node until it is corrected.",
    EventKind.COMPLETED_IN_PART: "The rest of the tree is reported; correct the files and send "
    "SIGHUP.",
    EventKind.RESHAPE_NEEDED_AGAIN: "Use another version of the driver.",
    EventKind.IDENTITY_CONFLICT: "Nothing is reported for this node until that is settled.",
    EventKind.ASSIGNED_RESOURCE_GONE: "Everything else is reported.",
    EventKind.DRIVER_FAILED: "Nothing is reported for this node in this pass.",
    EventKind.DRIVER_NOT_READY: "It is asked again in the next period.",
    EventKind.NODE_UNKNOWN: "It is asked again in the next period.",
    EventKind.CONFLICT: "Tried again in the next period.",
}

_STARTED_AGAIN = "The agent ends; systemd starts it again."
REMEDIES_AT_END = REMEDIES | {
    EventKind.UPDATE_REJECTED: "What placement accepted is in place. The agent ends; systemd "
    "starts it again. `compute-agent plan` shows what is missing.",
    EventKind.PLACEMENT_UNAVAILABLE: _STARTED_AGAIN,
    EventKind.CONFLICT: _STARTED_AGAIN,
    EventKind.DRIVER_FAILED: _STARTED_AGAIN,
    EventKind.COMPLETED_IN_PART: "The agent ends, and nothing is reported: correct the files and "
    "start it again.",
}


def with_remedy(kind: EventKind, message: str, *, is_end: bool = False) -> str:
    """Return a message and what an operator can do about a failure of its kind, as sentences.

    :param is_end: the process ends by it.
    """
    end = "" if message.endswith((".", "?", "!")) else "."
    remedies = REMEDIES_AT_END if is_end else REMEDIES
    return f"{message}{end} {remedies.get(kind, '')}".rstrip()


def trouble_of(fault: Fault, message: str, now: float) -> Trouble:
    """Return what the status shows of a fault.

    :param now: seconds of the clock of the fault.
    """
    since = time.time() - (now - fault.since)
    return Trouble(fault.kind.value, with_remedy(fault.kind, message), since, fault.seen_count)


def as_one(problems: Sequence[Exception]) -> Exception:
    """Return one error that names everything that is wrong with parts of a tree.

    An operator who mends one thing per start needs as many starts as there are things.

    :param problems: one at least; they are of the configuration, and so is the error.
    """
    if len(problems) == 1:
        return problems[0]
    problem_text = " ".join(f"({number}) {problem}" for number, problem in enumerate(problems, 1))
    return errors.InvalidConfiguration(
        f"{len(problems)} things have to be corrected: {problem_text}"
    )


class PassResult(Struct, frozen=True):
    """All that a pass, or a search for nodes, tells others.

    :ivar next_in: seconds after which the next is due.
    :ivar exit_code: with which the process must end; None: it need not.
    :ivar message: what was wrong, empty: nothing.
    :ivar kind: what its last try came to; None: there was none.
    :ivar facts: the driver's facts about the node, of a pass that completed.
    """

    completed: bool
    next_in: float
    exit_code: decisions.ExitCode | None = None
    message: str = ""
    kind: EventKind | None = None
    facts: Mapping[str, Any] = {}


class PassAttempt(Struct):
    """What one try of a pass did.

    :ivar began: seconds of a monotonic clock.
    :ivar error: it ended with this.
    :ivar problems: in a part of the tree, beside which the rest was reported.
    :ivar shown_fields: what the status shows of the host and its tree; what is left out is as
        before.
    """

    began: float
    tally: Tally | None = None
    error: Exception | None = None
    problems: list[Exception] = []
    changes: int = 0
    providers: int = 0
    shown_fields: dict[str, object] = {}

    @property
    def kind(self) -> EventKind:
        """What the try came to."""
        if isinstance(self.error, ReshapeNeededAgain):
            return EventKind.RESHAPE_NEEDED_AGAIN
        if self.error is not None:
            return decisions.classify(self.error)
        return EventKind.COMPLETED_IN_PART if self.problems else EventKind.COMPLETED

    @property
    def faults(self) -> list[Exception]:
        """The error and the problems."""
        return [*([] if self.error is None else [self.error]), *self.problems]

    @property
    def message(self) -> str:
        """What was wrong; empty: nothing."""
        return " ".join(str(fault) for fault in self.faults)

    def log(self, node: str, decision: Decision, now: float) -> None:
        """Log what the try came to, where the decision is to log it, and what is over by it."""
        if decision.ended_fault is not None:
            LOG.info(
                "Node %s: resolved: %s (it lasted %.0f s).",
                node,
                decision.ended_fault.kind.value,
                now - decision.ended_fault.since,
            )
        if decision.log is not None and self.faults:
            LOG.log(
                decision.log,
                "Node %s: %s: %s",
                node,
                self.kind.value,
                with_remedy(
                    self.kind, self.message, is_end=decision.action is decisions.Action.EXIT
                ),
                exc_info=self.error if decision.with_traceback else None,
            )

    def entry(self, node: Node, now: float) -> dict[str, object]:
        """Return what the status shows of the node after the try, but for the last success."""
        fault, tally = node.state.fault, self.tally
        return {
            "startup": node.state.startup,
            "reshape_pending": node.state.reshape_pending,
            "trouble": fault and trouble_of(fault, self.message, now),
            "last_pass": PassOutcome(
                at=time.time(),
                seconds=round(now - self.began, 3),
                requests=tally.requests if tally else 0,
                writes=tally.writes if tally else 0,
                providers=self.providers,
                changes=self.changes,
                outcome=self.kind.value,
                global_request_id=tally.global_request_id if tally else "",
            ),
            **self.shown_fields,
        }


def subject_of(error: Exception) -> str:
    """Return what distinguishes this fault from another of its kind.

    Not the whole message: that holds request ids, which differ each time.
    """
    failures = getattr(error, "failures", ())
    if failures:
        return " ".join(sorted(f"{failure.aspect}:{failure.uuid}" for failure in failures))
    status = getattr(error, "status", None)
    path = getattr(error, "path", None)
    if status is not None or path is not None:
        return f"{type(error).__name__} {status}"
    return f"{type(error).__name__} {error}"
