"""Ends and stops of processes that another process waits for."""

from __future__ import annotations

import time
from collections.abc import Sequence

import psutil

_WAIT = 150.0


def await_end(processes: Sequence[psutil.Process]) -> None:
    """Until all of them have ended; zombies have."""
    deadline = time.monotonic() + _WAIT
    while any(map(_lives, processes)):
        assert time.monotonic() < deadline, f"still there: {processes}"
        time.sleep(0.005)


def await_stop(process: psutil.Process) -> None:
    """Until it is stopped, as SIGSTOP has not stopped it yet when it is sent; or has ended."""
    deadline = time.monotonic() + _WAIT
    while _lives(process) and process.status() != psutil.STATUS_STOPPED:
        assert time.monotonic() < deadline, f"not stopped: {process}"
        time.sleep(0.001)


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
