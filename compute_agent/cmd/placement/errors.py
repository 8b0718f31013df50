"""Errors of the commands of placement."""

from __future__ import annotations

from compute_agent import errors
from compute_agent.programs.exit_status import Exit


class BadInput(errors.ComputeAgentError):
    """An argument or a file that cannot be used."""


class NamedThingMissing(errors.PlacementError):
    """Something that was named does not exist."""

    exit_status = Exit.FAILED


class RequestInvalid(errors.PlacementError):
    """What was asked is nothing that placement could do, whatever its state."""

    exit_status = Exit.USAGE


class RequestRefused(errors.PlacementError):
    """Placement refused what was asked."""

    exit_status = Exit.REFUSED
