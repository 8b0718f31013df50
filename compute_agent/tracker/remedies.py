"""Remedies for a failed pass: its name, its difference from others, and what an operator can do."""

from __future__ import annotations

from collections.abc import Sequence

from compute_agent import errors
from compute_agent.tracker import decisions
from compute_agent.tracker.decisions import EventKind
from compute_agent.tracker.passes.node_pass import ReshapeNeededAgain

REMEDIES = {
    EventKind.RESHAPE_NEEDED: "Nothing was changed for this node. Restart the agent to move its "
    "inventory and allocations, or stop it and run `compute-manage placement "
    "migrate_compute_inventory`.",
    EventKind.RESHAPE_FAILED: "Placement holds the old state. Remove the cause, start again, or "
    "run `compute-manage placement migrate_compute_inventory --dry-run` to see the plan.",
    EventKind.UPDATE_REJECTED: "What placement accepted is in place, the rest is tried again in "
    "the next pass. `compute-agent plan` shows what is missing.",
    EventKind.PLACEMENT_UNAVAILABLE: "The agent goes on and reports when placement answers again.",
    EventKind.PLACEMENT_UNAUTHORIZED: "Check the user, password, role and endpoint of group "
    "[placement] and the service catalogue.",
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


def with_remedy(kind: EventKind, message: str) -> str:
    """Return a message and what an operator can do about a failure of its kind, as sentences."""
    end = "" if message.endswith((".", "?", "!")) else "."
    return f"{message}{end} {REMEDIES.get(kind, '')}".rstrip()


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


def kind_of(error: Exception | None, problems: Sequence[Exception]) -> EventKind:
    """Return what a try came to that ended with `error`, or with problems in a part of the tree."""
    if isinstance(error, ReshapeNeededAgain):
        return EventKind.RESHAPE_NEEDED_AGAIN
    if error is not None:
        return decisions.classify(error)
    return EventKind.COMPLETED_IN_PART if problems else EventKind.COMPLETED


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
