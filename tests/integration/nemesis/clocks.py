"""Faults that set the server's clock an hour ahead or back; the monotonic clock goes on."""

from __future__ import annotations

from typing import Final

from tests.integration.nemesis.stage import Fault, Stage

_STEPS: Final = (0, 3600, -3600)


def step_clock(stage: Stage) -> str:
    """The server's clock is set, and set again at the next such fault."""
    assert stage.clock is not None
    seconds = stage.dice.choice([step for step in _STEPS if step != stage.clock.ahead])
    stage.clock.set(seconds)
    stage.await_writes(10)
    return f"the server's clock is {seconds} s ahead"


CLOCKS: tuple[Fault, ...] = 2 * (Fault(step_clock, lambda stage: stage.clock is not None),)
