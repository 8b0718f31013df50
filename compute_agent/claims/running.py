"""Claims that are running now, for the status: each with what it does, or waits for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

LONG: Final = 1.0
"""Seconds after which a claim that is running is shown."""


class RunningClaims:
    """The claims that are running, by instance. Safe for several threads.

    :param clock: seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._stages: dict[str, tuple[str, float]] = {}

    @contextmanager
    def one(self, instance: str, stage: str) -> Iterator[Callable[[str], None]]:
        """Cover one claim; yield what sets its stage."""
        began = self._clock()

        def set_stage(stage: str) -> None:
            self._stages[instance] = stage, began

        set_stage(stage)
        try:
            yield set_stage
        finally:
            self._stages.pop(instance, None)

    def long(self) -> list[dict[str, Any]]:
        """Return those that have been running for longer than `LONG`."""
        now = self._clock()
        return [
            {"instance": instance, "stage": stage, "since": since}
            for instance, (stage, since) in sorted(self._stages.copy().items())
            if now - since > LONG
        ]
