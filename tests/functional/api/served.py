"""A placement-server process to test from outside."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Any, Final, Self

import requests

from tests.fixtures import programs
from tests.fixtures.databases import migrated_sqlite

from .wsgi_client import EXTENDED, LATEST

ADMIN: Final = {"X-Auth-Token": "admin", "OpenStack-API-Version": f"placement {LATEST}"}
EXTENDED_ADMIN: Final = {**ADMIN, "OpenStack-API-Version": f"placement {EXTENDED}"}
"""An admin who knows the extensions."""

_LISTENING = re.compile(r"placement-server: listening on (\S+)")
_START_SECONDS = 120
_STOP_SECONDS = 40


class ServerProcess:
    """`placement-server serve` on a free port, its output kept.

    :param migrated: its database has the schema before it starts.
    :param program: text of a program to run instead, which changes something of the server.
    :param console_script: not a fork of a process that has imported everything: metrics of several
        workers are those of a process that sets them up before it imports what counts.
    """

    def __init__(
        self,
        directory: Path,
        *arguments: str,
        config: str = "",
        configured: bool = True,
        migrated: bool = True,
        program: str | None = None,
        console_script: bool = False,
    ) -> None:
        given = ["--port", "0", *arguments]
        if configured:
            config_file = directory / "placement.conf"
            database = directory / "placement.db"
            url = migrated_sqlite(database) if migrated else f"sqlite:///{database}"
            config_file.write_text(
                f"[placement_database]\nconnection = {url}\n"
                "sync_on_startup = true\nsqlite_synchronous = false\n"
                "[api]\nauth_strategy = noauth2\n"
                f"[oslo_policy]\nenforce_new_defaults = false\n{config}"
            )
            given += ["--config-file", str(config_file)]
        reader, writer = os.pipe()
        self._output = open(reader)  # noqa: SIM115 - read for as long as the server lives
        with open(writer) as output:
            self.process: programs.Process = _start(
                program, ["serve", *given], output, console_script
            )
        self._lines: list[str] = []
        self._listening = threading.Event()
        self.url = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._listening.wait(_START_SECONDS) or not self.url:
            self.process.kill()
            raise RuntimeError(f"the server did not start: {self.output}")

    def _read(self) -> None:
        with self._output:
            for line in self._output:
                self._lines.append(line)
                found = _LISTENING.search(line)
                if found:
                    self.url = found[1]
                    self._listening.set()
        self._listening.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def ask(self, method: str, path: str, **arguments: Any) -> requests.Response:
        """Send a request of an admin on a connection of its own."""
        sent = {"headers": ADMIN, "timeout": 60, **arguments}
        return requests.request(method, f"{self.url}{path}", **sent)

    @property
    def output(self) -> str:
        return "".join(self._lines)

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.url.rpartition("/")[2].rpartition(":")
        return host, int(port)

    def exchange(self, request: bytes) -> bytes:
        """What comes back on a connection of its own until the server closes it."""
        with socket.create_connection(self.address, timeout=30) as connection:
            connection.sendall(request)
            received = []
            while chunk := connection.recv(65536):
                received.append(chunk)
        return b"".join(received)

    def has_read(self, client: socket.socket) -> bool:
        """Check whether the server has a connection, and has read all that was sent on it."""
        port, remote_port = self.address[1], client.getsockname()[1]
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            _, local, remote, _state, queues, *_ = line.split()
            if (local[-4:], remote[-4:]) == (f"{port:04X}", f"{remote_port:04X}"):
                return int(queues.partition(":")[2], 16) == 0
        return False

    def stop(self, with_signal: signal.Signals = signal.SIGTERM) -> int:
        """Stop gracefully; the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(with_signal)
        try:
            status = self.process.wait(timeout=_STOP_SECONDS)
        finally:
            self.process.kill()
        self._reader.join(timeout=_STOP_SECONDS)
        return status


def _start(
    program: str | None, arguments: list[str], output: IO[str], console_script: bool
) -> programs.Process:
    if program is not None:
        command = [sys.executable, "-c", program, *arguments]
        return subprocess.Popen(command, stdout=output, stderr=output)
    environment = os.environ | ({"PRELOADED": "no"} if console_script else {})
    return programs.start("placement-server", *arguments, output=output, environment=environment)
