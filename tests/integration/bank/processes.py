"""Ends of processes that another process waits for."""

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


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
