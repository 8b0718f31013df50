"""Clocks that are set an hour ahead or back; the monotonic clock goes on."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path
from typing import Final

from tests.integration.nemesis.stage import Fault, Stage

_SOURCE: Final = Path(__file__).with_name("clock.c")
_STEPS: Final = (0, 3600, -3600)


def missing() -> str | None:
    """Return why no clock can be set, None if one can."""
    return None if shutil.which("gcc") else "gcc is not installed (Debian package: gcc)"


class Clock:
    """The clock of the programs that have its environment.

    libfaketime is not used: sleeps fail under it when it leaves the monotonic clock alone.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self.ahead = 0
        self._offset = directory / "offset"
        self._library = directory / "clock.so"
        self._offset.write_bytes(bytes(8))
        flags = ["-O2", "-Wall", "-Werror", "-shared", "-fPIC"]
        subprocess.run(["gcc", *flags, str(_SOURCE), "-ldl", "-o", str(self._library)], check=True)

    def set(self, seconds: int) -> None:
        """Set it so many seconds ahead of the truth."""
        self.ahead = seconds
        with self._offset.open("r+b", buffering=0) as file:
            file.write(struct.pack("q", seconds))

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self._library), "CLOCK_OFFSET": str(self._offset)}


class StepClock(Fault):
    """The server's clock is set, and set again at the next such fault."""

    def possible(self, stage: Stage) -> bool:
        return stage.clock is not None

    def strike(self, stage: Stage) -> str:
        assert stage.clock is not None
        seconds = stage.dice.choice([step for step in _STEPS if step != stage.clock.ahead])
        stage.clock.set(seconds)
        stage.await_writes(10)
        return f"the server's clock is {seconds} s ahead"


CLOCKS: tuple[Fault, ...] = (StepClock(), StepClock())
