"""Exit status of placement, and the errors that it distinguishes."""

from __future__ import annotations

from enum import IntEnum

from compute_agent import errors
from compute_agent.cmd import program


class Exit(IntEnum):
    """Exit status of the command."""

    DONE = program.FINE
    NOTHING = 1
    BAD_INPUT = 2
    PLACEMENT = 3
    REFUSED = 4
    WOULD_CHANGE = 6
    INTERRUPTED = program.INTERRUPTED
    UNEXPECTED = program.UNEXPECTED


STATUS: dict[int, str] = {
    Exit.DONE: "done",
    Exit.NOTHING: "not found, or nothing fits",
    Exit.BAD_INPUT: "bad options, file, configuration or request",
    Exit.PLACEMENT: "placement cannot be used",
    Exit.REFUSED: "placement refused the request: a conflict, or something is in use",
    Exit.WOULD_CHANGE: "--dry-run, and something would be changed",
}


class BadInput(errors.ComputeAgentError):
    """An argument or a file that cannot be used."""


class Missing(errors.PlacementError):
    """Something that was named does not exist."""


class RequestInvalid(errors.PlacementError):
    """What was asked is nothing that placement could do, whatever its state."""


class RequestRefused(errors.PlacementError):
    """Placement refused what was asked."""


def exit_of(error: errors.ComputeAgentError) -> Exit:
    """Return the exit status of an error."""
    if isinstance(error, Missing):
        return Exit.NOTHING
    if isinstance(error, RequestRefused):
        return Exit.REFUSED
    if isinstance(error, RequestInvalid):
        return Exit.BAD_INPUT
    if isinstance(error, errors.PlacementError):
        return Exit.PLACEMENT
    return Exit.BAD_INPUT
