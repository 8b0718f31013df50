"""The real `compute-agent dev`, started and ended by tests."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TextIO

import psutil
import pytest

from tests.fixtures import programs

UP = "Ctrl-C ends it"
SECONDS = 120


class Dev:
    """One run of the command; its output is collected as it comes."""

    def __init__(self, state_home: Path, *arguments: str, **environment: str) -> None:
        self.state_home = state_home
        # workers of pytest-xdist have a width of 80 there, in which lines are folded
        inherited = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
        printed, output = _pipe()
        self._errors, errors = _pipe()
        with output, errors:
            self.process = programs.start(
                "compute-agent",
                *("dev", *arguments),
                output=output,
                errors=errors,
                environment={**inherited, "XDG_STATE_HOME": str(state_home), **environment},
            )
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, args=[printed], daemon=True)
        self._reader.start()
        self.stderr = ""

    def _read(self, printed: TextIO) -> None:
        with printed:
            for line in printed:
                with self._changed:
                    self._lines.append(line)
                    self._changed.notify_all()

    @property
    def output(self) -> str:
        """What it printed so far."""
        with self._changed:
            return "".join(self._lines)

    def wait_for(self, text: str) -> None:
        """Return once `text` is printed."""
        deadline = time.monotonic() + SECONDS
        with self._changed:
            while not any(text in line for line in self._lines):
                left = deadline - time.monotonic()
                ended = self.process.poll() is not None and not self._reader.is_alive()
                if left < 0 or ended:
                    raise AssertionError(f"{text!r} was not printed: {''.join(self._lines)}")
                self._changed.wait(min(left, 0.5))

    def children(self) -> list[psutil.Process]:
        """Every process below it."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def end(self) -> int:
        """Wait for its end and return its exit status."""
        status = self.process.wait(SECONDS)
        self._reader.join(SECONDS)
        with self._errors:
            self.stderr = self._errors.read()
        return status

    def interrupt(self) -> int:
        """Press Ctrl-C and return the exit status."""
        self.process.send_signal(signal.SIGINT)
        return self.end()


def _pipe() -> tuple[TextIO, IO[bytes]]:
    reading, writing = os.pipe()
    return os.fdopen(reading, encoding="utf-8"), os.fdopen(writing, "wb")


Start = Callable[..., Dev]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts the command with a state home of the test's own; ends it afterwards if need be."""
    started: list[Dev] = []

    def run(*arguments: str, **environment: str) -> Dev:
        started.append(Dev(tmp_path, *arguments, **environment))
        return started[-1]

    yield run
    for process in started:
        if process.process.poll() is None:
            process.process.terminate()
            process.end()
