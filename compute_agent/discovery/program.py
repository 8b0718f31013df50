"""Output of programs that describe a part of the machine, each run under a deadline."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
from collections.abc import Sequence
from typing import Final

from compute_agent.discovery.bounded_calls import step
from compute_agent.discovery.errors import ProgramFailed

TIMEOUT: Final = 30.0
"""Seconds for one program."""

_LAST_WORDS: Final = 200
_AFTER_KILL: Final = 1.0


def output_of(command: Sequence[str], timeout: float = TIMEOUT) -> str:
    """Run a program to its end and return what it wrote to its standard output.

    One that does not end in time is killed with all that it started, and left behind where even
    that does not end it, as a read of a dead disk.

    :raises ProgramFailed: it is missing, fails, or does not end in time.
    """
    command_line = shlex.join(command)
    step(command_line)
    try:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "LC_ALL": "C"},
            start_new_session=True,
        )
    except OSError as error:
        raise ProgramFailed(command_line, error.strerror or str(error)) from error
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired as error:
        _give_up(process)
        raise ProgramFailed(command_line, f"it did not end within {timeout:g} seconds") from error
    if process.returncode:
        words = " ".join((err or out).decode(errors="replace").split())[-_LAST_WORDS:]
        raise ProgramFailed(command_line, f"status {process.returncode}: {words or 'no message'}")
    return out.decode(errors="replace")


def _give_up(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_AFTER_KILL)
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
