"""A screen of pictures that is left in other ways than by its keys."""

import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.fixtures.terminal import Terminal
from tests.functional.agent.processes import eventually

pytestmark = pytest.mark.waiting

PROGRAM = """
import sys
from compute_agent.cmd.screen import Screen
with Screen() as screen:
    while not screen.is_left(0.05):
        screen.show([f"line {number}" for number in range(30)])
print("the end", file=sys.stderr)
"""
COMMAND = (sys.executable, "-c", PROGRAM)
JOB_CONTROL = f"set -m; {shlex.join(COMMAND)}; echo stopped; read -r line; fg"


@contextmanager
def terminal(*command: str, size: tuple[int, int] = (24, 80)) -> Iterator[Terminal]:
    started = Terminal(*command, size=size)
    try:
        eventually(lambda: "more lines" in started.shown, "a picture")
        yield started
    finally:
        started.process.kill()
        started.process.wait()


def test_a_program_that_is_asked_to_end_gives_the_terminal_back() -> None:
    with terminal(*COMMAND) as shown:
        shown.process.send_signal(signal.SIGTERM)
        assert shown.ended() == -signal.SIGTERM
        assert shown.is_as_before()


def test_a_stopped_program_gives_the_terminal_back_until_it_goes_on() -> None:
    with terminal("bash", "--norc", "-c", JOB_CONTROL) as shown:
        shown.type("\x1a")
        eventually(lambda: "stopped" in shown.shown, "the shell")
        assert shown.is_as_before()
        pictures = shown.shown.count("more lines")
        shown.type("\n")
        eventually(lambda: shown.shown.count("more lines") > pictures, "a picture")
        assert not shown.is_as_before()
        shown.type("q")
        assert shown.ended() == 0
        assert shown.is_as_before()


def test_a_terminal_without_a_size_has_the_usual_one() -> None:
    with terminal(*COMMAND, size=(0, 0)) as shown:
        picture = shown.shown.partition("more lines")[0]
        assert "line 21" in picture
        assert picture.endswith("... 8 ")


def test_a_reader_that_leaves_ends_the_program() -> None:
    with subprocess.Popen(
        COMMAND, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "line 0\n"
        process.stdout.close()
        assert process.stderr.read() == "the end\n"
        assert process.wait() == 0
