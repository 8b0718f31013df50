"""A process that the development command starts, watches and ends."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from compute_agent.errors import ComputeAgentError
from compute_agent.programs.exit_status import Exit


class DevFailed(ComputeAgentError):
    """The development command cannot go on; the text has the reason and the remedy."""

    exit_status = Exit.FAILED


class DevInterrupted(DevFailed):
    """The command was stopped before everything was up."""

    exit_status = Exit.INTERRUPTED


_PR_SET_PDEATHSIG = 1
"""prctl(2): the signal a process gets when its parent dies."""
_POLL_SECONDS = 0.05
_LOG_PREFIX = re.compile(r"^\S+ \S+ \d+ (ERROR|CRITICAL) \S+ (\[[^]]*\] )?")


class Child:
    """One process, running a module of this installation, with a log file of its own.

    It is ended by its process id, and by the kernel if this process is killed.

    :param name: its name in messages.
    :param arguments: module and its arguments, as after `python -m`.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = log
        # an agent that is asked twice abandons its pass
        self._asked_to_end = False
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                # outside the process group, which gets Ctrl-C as a whole: children end in order
                start_new_session=True,
                preexec_fn=_die_with_parent(os.getpid()),
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def check(self) -> None:
        """Check that it runs.

        :raises DevFailed: it ended; the text has its last line of output.
        """
        status = self._process.poll()
        if status is None:
            return
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        words = self.last_output()
        ending = f": {words}" if words else " without output"
        raise DevFailed(f"{self.name} {how}{ending} (whole log: {self.log})")

    def wait_until(
        self, condition: Callable[[], object], what: str, seconds: float, stop: threading.Event
    ) -> None:
        """Return once `condition` holds.

        :raises DevFailed: the process ended, or the time is over.
        :raises DevInterrupted: `stop` was set.
        """
        deadline = time.monotonic() + seconds
        while not condition():
            self.check()
            if time.monotonic() > deadline:
                words = self.last_output()
                raise DevFailed(
                    f"{self.name} did not {what} within {seconds:.0f} seconds"
                    f"{f'; its last output: {words}' if words else ''} (whole log: {self.log})"
                )
            if stop.wait(_POLL_SECONDS):
                raise DevInterrupted("interrupted while starting")

    def last_output(self) -> str:
        """Return the last line of its log that matters, or an empty string."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        texts = [line.strip() for line in lines if line.strip()]
        errors = [line for line in texts if _LOG_PREFIX.match(line) or line.startswith(self.name)]
        last = (errors or texts or [""])[-1]
        return _LOG_PREFIX.sub("", last).removeprefix(f"{self.name}: ")

    def terminate(self) -> None:
        """Ask it to end, without waiting."""
        if not self._asked_to_end and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        self._asked_to_end = True

    def stop(self, seconds: float = 10.0) -> None:
        """End it with SIGTERM, and with SIGKILL after `seconds`."""
        self.terminate()
        if self._process.poll() is None:
            try:
                self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()


def _die_with_parent(parent: int) -> Callable[[], None]:
    # looked up before the fork: the child must not take the import lock
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def ask_kernel() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            # it died between fork and prctl
            os._exit(1)

    return ask_kernel
