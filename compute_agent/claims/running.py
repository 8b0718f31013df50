"""Claims that are running now, for the status: each with what it does, or waits for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from msgspec import Struct

LONG: Final = 1.0
"""Seconds after which a claim that is running is shown."""


class RunningClaims(Struct, eq=False):
    """The claims that are running, by instance. Safe for several threads.

    :ivar clock: seconds since the epoch.
    """

    clock: Callable[[], float] = time.time
    _stages: dict[str, tuple[str, float]] = {}

    @contextmanager
    def one(self, instance: str, stage: str) -> Iterator[Callable[[str], None]]:
        """Cover one claim; yield what sets its stage."""
        began = self.clock()

        def set_stage(stage: str) -> None:
            self._stages[instance] = stage, began

        set_stage(stage)
        try:
            yield set_stage
        finally:
            self._stages.pop(instance, None)

    def long(self) -> list[dict[str, Any]]:
        """Return those that have been running for longer than `LONG`."""
        now = self.clock()
        return [
            {"instance": instance, "stage": stage, "since": since}
            for instance, (stage, since) in sorted(self._stages.copy().items())
            if now - since > LONG
        ]
