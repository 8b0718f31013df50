"""Accounts of the tries of passes: their log lines, and what the status shows of them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from compute_agent.tracker.decisions import Action, Decision, EventKind
from compute_agent.tracker.node import Node
from compute_agent.tracker.remedies import kind_of, with_remedy
from compute_agent.tracker.status import PassOutcome, StatusBoard, Trouble

if TYPE_CHECKING:
    from compute_agent.report.client import ReportClient

LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class PassAttempt:
    """What one try of a pass did."""

    began: float
    changes: int = 0
    providers: int = 0
    requests: int = 0
    writes: int = 0
    global_request_id: str = ""
    problems: list[Exception] = field(default_factory=list)
    shown_fields: dict[str, object] = field(default_factory=dict)
    """What the status shows of the tree; empty: the driver was not asked."""


class PassAccounts:
    """The log and the status board, as tries of passes are entered there.

    :param on_outcome: called with what a try came to, and its message.
    :param clock: seconds, monotonic.
    """

    def __init__(
        self,
        report: ReportClient,
        board: StatusBoard,
        on_outcome: Callable[[EventKind, str], None],
        clock: Callable[[], float],
    ) -> None:
        self._report = report
        self._board = board
        self._on_outcome = on_outcome
        self._clock = clock

    def entry(
        self, node: Node, attempt: PassAttempt, decision: Decision, error: Exception | None
    ) -> dict[str, object]:
        """Log and count a try, and return what the status shows of the node after it."""
        kind = kind_of(error, attempt.problems)
        message = " ".join(str(problem) for problem in (error, *attempt.problems) if problem)
        self._log(node, kind, decision, message, error)
        self._on_outcome(kind, message)
        is_completed = decision.action is Action.DONE
        seconds = self._clock() - attempt.began
        self._board.count_pass("completed" if is_completed else "failed", seconds)
        if is_completed:
            # Forgotten if a request of the pass had to be repeated. Asking again could fail, and
            # the pass did not.
            offered_versions = self._report.offered_versions
            version = (
                f"{offered_versions.maximum[0]}.{offered_versions.maximum[1]}"
                if offered_versions
                else ""
            )
            self._board.placement_is(up=True, max_version=version)
        elif decision.action is Action.BACK_OFF:
            self._board.placement_is(up=False)
        now = time.time()
        changes: dict[str, object] = {
            "startup": node.state.startup,
            "reshape_pending": node.state.reshape_pending,
            "trouble": self._trouble(node, message),
            "last_pass": PassOutcome(
                at=now,
                seconds=round(seconds, 3),
                requests=attempt.requests,
                writes=attempt.writes,
                providers=attempt.providers,
                changes=attempt.changes,
                outcome=kind.value,
                global_request_id=attempt.global_request_id,
            ),
        }
        if is_completed:
            changes["last_success"] = now
        return changes | attempt.shown_fields

    def _trouble(self, node: Node, message: str) -> Trouble | None:
        fault = node.state.fault
        if fault is None:
            return None
        since = time.time() - (self._clock() - fault.since)
        return Trouble(fault.kind.value, message, since, fault.seen_count)

    def _log(
        self,
        node: Node,
        kind: EventKind,
        decision: Decision,
        message: str,
        error: Exception | None,
    ) -> None:
        if decision.ended_fault is not None:
            LOG.info(
                "Node %s: resolved: %s (it lasted %.0f s).",
                node.name,
                decision.ended_fault.kind.value,
                self._clock() - decision.ended_fault.since,
            )
        if decision.log is not None and message:
            LOG.log(
                decision.log,
                "Node %s: %s: %s",
                node.name,
                kind.value,
                with_remedy(kind, str(message)),
                exc_info=error if decision.with_traceback else None,
            )
