"""Errors of requests."""

from __future__ import annotations

from compute_agent.errors import ComputeAgentError


class SchedulerError(ComputeAgentError):
    """Root of the errors that the scheduler raises on purpose."""


class InvalidRequest(SchedulerError):
    """A request that no placement could answer; the message names field, value and expectation."""

    def __init__(self, field: str, value: object, expected: str) -> None:
        super().__init__(f"{field} is {value!r}: expected {expected}.")
        self.field = field
        self.value = value
        self.expected = expected
