"""Exit status of compute-agent."""

from __future__ import annotations

from enum import IntEnum

from compute_agent import errors
from compute_agent.cmd import program


class Exit(IntEnum):
    """Exit status of the command; 1 to 5 are also those of the daemon."""

    FINE = program.FINE
    CONFIGURATION = 1
    RESHAPE_FAILED = 2
    PLACEMENT_REJECTED = 3
    DRIVER_FAILED = 4
    IDENTITY = 5
    WOULD_CHANGE = 6
    NO_AGENT = 7
    BAD_ARGUMENTS = 127
    INTERRUPTED = program.INTERRUPTED
    UNEXPECTED = program.UNEXPECTED


STATUS: dict[int, str] = {
    Exit.FINE: "success; run: stopped on request; plan: no changes and no errors; diff: no "
    "differences",
    Exit.CONFIGURATION: "configuration error, also of plan; doctor: warnings",
    Exit.RESHAPE_FAILED: "a reshape failed; doctor: errors",
    Exit.PLACEMENT_REJECTED: "placement rejected a request, or cannot be used",
    Exit.DRIVER_FAILED: "the driver failed, or there is no such node or host",
    Exit.IDENTITY: "identity: lost, contradictory, or the name belongs to another provider",
    Exit.WOULD_CHANGE: "plan: changes; diff: differences",
    Exit.NO_AGENT: "no agent answers",
    Exit.BAD_ARGUMENTS: "bad arguments",
}


def exit_of(error: errors.ComputeAgentError) -> Exit:
    """Return the exit status that an error stands for."""
    from compute_agent.agent.local_socket import AgentNotRunning
    from compute_agent.tracker.decisions import exit_code_of

    return Exit.NO_AGENT if isinstance(error, AgentNotRunning) else Exit(exit_code_of(error))
