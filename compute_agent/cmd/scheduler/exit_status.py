"""Exit status of compute-scheduler."""

from __future__ import annotations

from enum import IntEnum

from compute_agent import errors
from compute_agent.cmd import program

_CONFLICTS = (
    errors.AllocationUpdateFailed | errors.AllocationDeleteFailed | errors.AllocationMoveFailed
)


class Exit(IntEnum):
    """Exit status of the command."""

    DONE = program.FINE
    NOTHING_FITS = 1
    BAD_INPUT = 2
    PLACEMENT = 3
    CONFLICT = 4
    INTERRUPTED = program.INTERRUPTED
    UNEXPECTED = program.UNEXPECTED


STATUS: dict[int, str] = {
    Exit.DONE: "done",
    Exit.NOTHING_FITS: "nothing fits, or there was nothing to release",
    Exit.BAD_INPUT: "bad options, request or configuration",
    Exit.PLACEMENT: "placement, or the running scheduler, cannot be used",
    Exit.CONFLICT: "another writer claimed or changed the consumer",
}


def exit_of(error: errors.ComputeAgentError) -> Exit:
    """Return the exit status of an error."""
    from compute_agent.openstack.service import ServiceUnusable
    from compute_agent.scheduler.errors import (
        AnswerMalformed,
        MoveRefused,
        NoSchedulerAnswers,
        NoValidHost,
    )

    if isinstance(error, NoValidHost):
        return Exit.NOTHING_FITS
    if isinstance(error, _CONFLICTS | MoveRefused):
        return Exit.CONFLICT
    if isinstance(
        error, errors.PlacementError | AnswerMalformed | NoSchedulerAnswers | ServiceUnusable
    ):
        return Exit.PLACEMENT
    return Exit.BAD_INPUT
