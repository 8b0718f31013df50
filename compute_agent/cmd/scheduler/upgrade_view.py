"""State of a fleet in the middle of an upgrade, printed for people."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, TextIO


def print_status(status: Mapping[str, Any], out: TextIO | None = None) -> None:
    """Print a status line by line."""
    out = out or sys.stdout
    lowest = status["minimum_service_version"]
    announcements = (
        "no agent has announced itself yet" if lowest == 0 else f"lowest service version {lowest}"
    )
    out.write(f"Agents: {announcements}\n")
    for behaviour in status["behaviours"]:
        if behaviour["in_force"]:
            out.write(f"in force   {behaviour['name']}: {behaviour['means']}\n")
            continue
        hosts = ", ".join(behaviour["held_back_by"]) or "no agent has announced itself"
        out.write(f"held back  {behaviour['name']}: {behaviour['means']}; by {hosts}\n")
