"""Errors of the development command."""

from __future__ import annotations

from compute_agent.errors import ComputeAgentError
from compute_agent.programs.exit_status import Exit


class DevFailed(ComputeAgentError):
    """The development command cannot go on; the text has the reason and the remedy."""

    exit_status = Exit.FAILED


class DevInterrupted(DevFailed):
    """The command was stopped before everything was up."""

    exit_status = Exit.INTERRUPTED
