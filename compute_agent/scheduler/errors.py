"""Errors of the scheduler, below those of the whole package.

    ComputeAgentError
      SchedulerError
        InvalidRequest        # the request is wrong: names field, value, what was expected
        NoValidHost           # placement was asked, and nothing fits or nothing could be claimed
        AnswerMalformed       # placement's answer contradicts itself
        MoveRefused           # what the consumers hold is not what the move needs
        NoSchedulerAnswers    # a running scheduler was asked about itself

Placement that cannot be reached is not among them: `PlacementUnavailable` goes to the caller as it
is, and never looks like a full cloud.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import to_builtins

from compute_agent.programs.exit_status import Exit
from compute_agent.request.errors import SchedulerError
from compute_agent.scheduler.outcomes import Causes, causes_of


class NoValidHost(SchedulerError):
    """No host can take the request.

    :param reason: one sentence for an operator.
    :param causes: what was asked, what was dropped where, and which claims were lost.
    """

    exit_status = Exit.FAILED

    def __init__(self, reason: str, causes: Causes | Mapping[str, Any]) -> None:
        super().__init__(f"No valid host was found. {reason}")
        self.reason = reason
        self.causes = causes if isinstance(causes, Causes) else causes_of(causes)
        # what the message bus makes the error of again, at a caller that knows this module
        self.args, self.kwargs = (), self.as_dict()

    def __str__(self) -> str:
        return f"No valid host was found. {self.reason}"

    def as_dict(self) -> Mapping[str, Any]:
        """Return reason and causes as plain JSON types."""
        return {"reason": self.reason, "causes": to_builtins(self.causes)}


class UnknownName(Exception):
    """Placement does not know a trait or resource class of the question, so nothing can match."""


class AnswerMalformed(SchedulerError):
    """An answer of placement that contradicts itself or the API."""

    exit_status = Exit.PLACEMENT


class MoveRefused(SchedulerError):
    """A move whose consumers hold something else than they must; nothing was changed."""

    exit_status = Exit.REFUSED


class NoSchedulerAnswers(SchedulerError):
    """No scheduler on the message bus answered a question about itself."""

    exit_status = Exit.PLACEMENT
