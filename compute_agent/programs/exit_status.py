"""Exit statuses of all programs, and the end of a command's help that lists them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final


class Exit(IntEnum):
    """Status with which a command ends, unless its statuses are given from elsewhere."""

    FINE = 0
    FAILED = 1
    USAGE = 2
    PLACEMENT = 3
    REFUSED = 4
    WOULD_CHANGE = 6
    NO_AGENT = 7
    UNFINISHED = 8
    BAD_ARGUMENTS = 127
    """Of compute-agent and compute-manage, where 2 is given from elsewhere."""
    INTERRUPTED = 130
    DEFECT = 255


SHARED: Final[Mapping[int, str]] = MappingProxyType(
    {
        Exit.FINE: "done",
        Exit.FAILED: "failed: nothing fits, there is no such thing, or something was not done",
        Exit.USAGE: "bad arguments, file, configuration or request",
        Exit.PLACEMENT: "placement, or another service that is needed, cannot be used",
        Exit.REFUSED: "refused: a conflict, or something is in use",
        Exit.WOULD_CHANGE: "with --dry-run: something would be changed",
        Exit.UNFINISHED: "done, and something is left to do",
    }
)
_ALWAYS: Final[Mapping[int, str]] = MappingProxyType(
    {
        Exit.INTERRUPTED: "interrupted",
        Exit.DEFECT: "unexpected: a defect, with traceback",
    }
)


def exit_table(*more: str, statuses: Mapping[int, str] = SHARED) -> str:
    """Return the end of a command's help: a line for each status.

    :param more: lines that follow it.
    :param statuses: those of the command, without the ones that every command has.
    """
    lines = [f"  {status:<3}  {meaning}" for status, meaning in {**statuses, **_ALWAYS}.items()]
    return "\n".join(["exit status:", *lines, *(["", *more] if more else [])])
