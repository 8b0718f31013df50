"""A real `compute-scheduler serve` under a service manager that keeps what it hears."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from tests.fixtures import programs
from tests.functional.agent.processes import eventually

PROGRAM = str(Path(sys.executable).parent / "compute-scheduler")


class Service:
    """A scheduler under a service manager, which keeps what it hears."""

    def __init__(self, config: Path, watchdog: float | None = None) -> None:
        self.heard: list[str] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("")
        threading.Thread(target=self._hear, daemon=True).start()
        self._log = config.with_suffix(".log")
        variables = {
            **os.environ,
            "NOTIFY_SOCKET": "@" + self._socket.getsockname()[1:].decode(),
            **({"WATCHDOG_USEC": str(int(watchdog * 1e6))} if watchdog else {}),
        }
        with self._log.open("wb") as output:
            self.process = programs.start(
                "compute-scheduler",
                *("--config-file", str(config), "serve"),
                output=output,
                environment=variables,
            )

    def _hear(self) -> None:
        while True:
            self.heard += self._socket.recv(65536).decode().splitlines()

    @property
    def status(self) -> str:
        """The last line that `systemctl status` would show."""
        lines = [line for line in self.heard if line.startswith("STATUS=")]
        return lines[-1].removeprefix("STATUS=") if lines else ""

    def logged(self) -> str:
        return self._log.read_text()

    def until(self, line: str, times: int = 1) -> None:
        eventually(lambda: self.heard.count(line) >= times, f"{line} {times} times")

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(60)


@contextlib.contextmanager
def service(
    file: Path, workers: int = 1, bus: str = "fake://", watchdog: float | None = None
) -> Iterator[Service]:
    file.write_text(
        f"[DEFAULT]\ntransport_url = {bus}\n"
        + file.read_text()
        + f"[scheduler]\nworkers = {workers}\n"
    )
    started = Service(file, watchdog)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.wait()
