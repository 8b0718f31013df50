"""Errors of requests."""

from __future__ import annotations

from typing import Final

from compute_agent.errors import ComputeAgentError

_LONGEST: Final = 500
"""Characters of a value that are shown; the rest of a very long one is of no use."""


class SchedulerError(ComputeAgentError):
    """Root of the errors that the scheduler raises on purpose."""


class InvalidRequest(SchedulerError):
    """A request that no placement could answer; the message names field, value and expectation."""

    def __init__(self, field: str, value: object, expectation: str) -> None:
        super().__init__(f"{shown_name(field)} is {shown_value(value)}: expected {expectation}.")


def shown_value(value: object) -> str:
    """Return a value of a request for a message: on one line, and no longer than of use."""
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def shown_name(name: object) -> str:
    """Return a name that a request gives: as it is, if it is like one."""
    text = str(name)
    return text if text.isprintable() and len(text) <= _LONGEST else shown_value(text)
