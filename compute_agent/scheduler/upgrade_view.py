"""State of a fleet in the middle of an upgrade, printed for people."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, TextIO


def print_status(status: Mapping[str, Any], out: TextIO | None = None) -> None:
    """Print a status line by line."""
    out = out or sys.stdout
    lowest = status["minimum_service_version"]
    heard = "no agent was heard of yet" if lowest == 0 else f"lowest service version {lowest}"
    out.write(f"Agents: {heard}\n")
    for one in status["behaviours"]:
        if one["in_force"]:
            out.write(f"in force   {one['name']}: {one['means']}\n")
            continue
        hosts = ", ".join(one["held_back_by"]) or "no agent has announced itself"
        out.write(f"held back  {one['name']}: {one['means']}; by {hosts}\n")
