"""Trouble of a program that runs, and the fields of a value in a status document."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from msgspec import Struct, to_builtins


class Trouble(Struct, frozen=True):
    """What is wrong now, since when, and how often it was seen."""

    what: str
    message: str
    since: float
    seen: int


def dated(value: Any) -> dict[str, Any]:
    """Return the fields of a value, its moment as text."""
    fields: dict[str, Any] = to_builtins(value)
    return fields | {name: moment_text(fields[name]) for name in ("at", "since") if name in fields}


def moment_text(moment: float | None) -> str | None:
    """Return a moment, in seconds since the epoch, as a status document has it."""
    if moment is None:
        return None
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds")
