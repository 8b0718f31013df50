"""The real `compute-agent dev`, started and ended by tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.fixtures import programs
from tests.functional.agent.processes import eventually

UP = "Ctrl-C ends it"
SECONDS = 120


class Dev:
    """One run of the command; its output is in files as it comes."""

    def __init__(self, state_home: Path, name: str, *arguments: str, **environment: str) -> None:
        self.state_home = state_home
        self._output, self._errors = state_home / f"{name}.out", state_home / f"{name}.err"
        # workers of pytest-xdist have a width of 80 there, in which lines are folded
        inherited = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
        with self._output.open("wb") as output, self._errors.open("wb") as errors:
            self.process = programs.start(
                "compute-agent",
                *("dev", *arguments),
                output=output,
                errors=errors,
                environment={**inherited, "XDG_STATE_HOME": str(state_home), **environment},
            )

    @property
    def output(self) -> str:
        """What it printed so far."""
        return self._output.read_text()

    @property
    def stderr(self) -> str:
        """The errors that it printed so far."""
        return self._errors.read_text()

    def wait_for(self, text: str) -> None:
        """Return once `text` is printed."""
        eventually(lambda: text in self.output or self.process.poll() is not None, text, SECONDS)
        assert text in self.output, f"{text!r} was not printed: {self.output}{self.stderr}"

    def children(self) -> list[psutil.Process]:
        """Every process below it."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def end(self) -> int:
        """Wait for its end and return its exit status."""
        return self.process.wait(SECONDS)

    def interrupt(self) -> int:
        """Press Ctrl-C and return the exit status."""
        self.process.send_signal(signal.SIGINT)
        return self.end()


Start = Callable[..., Dev]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts the command with a state home of the test's own; ends it afterwards if need be."""
    started: list[Dev] = []

    def run(*arguments: str, **environment: str) -> Dev:
        started.append(Dev(tmp_path, f"run-{len(started)}", *arguments, **environment))
        return started[-1]

    yield run
    for process in started:
        if process.process.poll() is None:
            process.process.terminate()
            process.end()
