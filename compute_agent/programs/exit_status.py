"""Exit statuses of all programs, and the end of a command's help that lists them."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final, Self


class ExitStatus(IntEnum):
    """Base of the statuses of commands, each with what it means."""

    meaning: str

    def __new__(cls, status: int, meaning: str) -> Self:
        member = int.__new__(cls, status)
        member._value_ = status
        member.meaning = meaning
        return member


class Exit(ExitStatus):
    """Status with which a command ends, unless its statuses are given from elsewhere."""

    FINE = 0, "done"
    FAILED = 1, "failed: nothing fits, there is no such thing, or something was not done"
    USAGE = 2, "bad arguments, file, configuration or request"
    PLACEMENT = 3, "placement, or another service that is needed, cannot be used"
    REFUSED = 4, "refused: a conflict, or something is in use"
    WOULD_CHANGE = 6, "with --dry-run: something would be changed"
    NO_AGENT = 7, "no agent answers"
    UNFINISHED = 8, "done, and something is left to do"
    BAD_ARGUMENTS = 127, "bad arguments"
    """Of compute-agent and compute-manage, where 2 is given from elsewhere."""
    INTERRUPTED = 130, "interrupted"
    DEFECT = 255, "unexpected: a defect, with traceback"


_ALWAYS: Final = (Exit.INTERRUPTED, Exit.DEFECT)
SHARED: Final = tuple(
    status for status in Exit if status not in (Exit.NO_AGENT, Exit.BAD_ARGUMENTS, *_ALWAYS)
)


def exit_table(*more: str, statuses: Iterable[ExitStatus] = SHARED) -> str:
    """Return the end of a command's help: a line for each status.

    :param more: lines that follow it.
    :param statuses: those of the command, without the ones that every command has.
    """
    lines = [f"  {status:<3}  {status.meaning}" for status in sorted([*statuses, *_ALWAYS])]
    return "\n".join(["exit status:", *lines, *(["", *more] if more else [])])
