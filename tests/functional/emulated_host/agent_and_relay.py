"""The agent on an emulated host, and what hands over to it all that a test asks.

A program there takes seconds to start and to import what it needs. So that is imported once: the
agent is a fork of this one, which hands it what it finds in files with numbers, and runs scripts.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import Any, Final

OUTSIDE: Final = Path("/run/outside")
SOCKET: Final = "/disk/agent/status.sock"
PID_FILE: Final = Path("/run/agent.pid")
AGENT: Final = ("compute-agent", "run", "--config-file", str(OUTSIDE / "agent.conf"))
PAUSE: Final = 0.3
"""Seconds; to look more often would take the host's time."""


def list_entry_points() -> None:
    """Leave the list of the entry points of all packages in stevedore's cache."""
    from stevedore import NamedExtensionManager

    NamedExtensionManager("compute_agent.drivers", names=[])  # lists all, loads none


def start_agent() -> None:
    """Start the agent in a process and session of its own, whose id is in a file."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # one that is killed is reaped
    # Modules stay; to look through them for garbage takes a part of the time.
    gc.disable()
    import compute_agent.agent.assembly  # noqa: F401
    from compute_agent.cmd.agent import main

    gc.freeze()
    gc.enable()
    if os.fork() == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        PID_FILE.write_text(str(os.getpid()))
        log = os.open(OUTSIDE / "agent.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        sys.argv = list(AGENT)
        sys.exit(main.main())


def serve() -> None:
    """Answer requests, one after the other."""
    number = 1
    while True:
        request = OUTSIDE / f"{number}.request"
        while not os.path.exists(request):
            time.sleep(PAUSE)
        written = OUTSIDE / "new"
        written.write_text(_answer(request.read_text()))
        written.rename(request.with_suffix(".answer"))
        number += 1


def _answer(request: str) -> str:
    try:
        body: dict[str, Any] = json.loads(request)
        if "script" in body:
            exec(body["script"], {})
            return json.dumps({"result": None})
        return _answer_of_agent(request)
    except Exception:  # noqa: BLE001 - the test sees that there is no result
        traceback.print_exc()
        return "{}"


def _answer_of_agent(request: str) -> str:
    with socket.socket(socket.AF_UNIX) as agent:
        agent.connect(SOCKET)
        agent.sendall(request.encode())
        return agent.makefile().readline() or "{}"


if __name__ == "__main__":
    if sys.argv[1:] == ["entry-points"]:
        list_entry_points()
    else:
        start_agent()
        serve()
