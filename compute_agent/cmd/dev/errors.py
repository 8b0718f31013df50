"""Errors of the development command."""

from __future__ import annotations

from compute_agent.errors import ComputeAgentError


class DevFailed(ComputeAgentError):
    """The development command cannot go on; the text has the reason and the remedy."""


class DevInterrupted(DevFailed):
    """The command was stopped before everything was up."""
