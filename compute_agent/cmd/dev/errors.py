"""What can keep the development command from running."""

from __future__ import annotations

from compute_agent.errors import ComputeAgentError


class DevFailed(ComputeAgentError):
    """The development command cannot go on; the text says why and what to do."""


class DevInterrupted(DevFailed):
    """The command was told to stop before everything was up."""
