"""The end of a command's help: the meaning of each exit status."""

from __future__ import annotations

from collections.abc import Mapping

from compute_agent.cmd.program import INTERRUPTED, UNEXPECTED

ALWAYS = {INTERRUPTED: "interrupted", UNEXPECTED: "unexpected: a defect, with traceback"}


def exit_table(status: Mapping[int, str], *more: str) -> str:
    """Return the table, a line each, with the statuses that every command has.

    :param more: lines that follow it.
    """
    lines = [f"  {number:<3}  {meaning}" for number, meaning in {**status, **ALWAYS}.items()]
    return "\n".join(["exit status:", *lines, *(["", *more] if more else [])])
