"""Bursts of events, reported once each: devices and guests come in dozens."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

QUIET: Final = 0.5
"""Seconds without an event after which a burst is over."""
LONGEST: Final = 5.0
"""Seconds after which a burst is reported though it goes on."""


def report_bursts(
    next_event: Callable[[float | None], str | None],
    on_change: Callable[[str], None],
    quiet: float = QUIET,
) -> None:
    """Report the first event of each burst, when the burst is over, until there are no more.

    :param next_event: waits for the next event, at most the given seconds, and returns it in
        words; empty where none came in that time, None to end.
    """
    while (first := next_event(None)) is not None:
        deadline = time.monotonic() + LONGEST
        while (remaining_seconds := deadline - time.monotonic()) > 0:
            event = next_event(min(quiet, remaining_seconds))
            if event is None:
                return
            if not event:
                break
        on_change(first)
