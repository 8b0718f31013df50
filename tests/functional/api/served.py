"""A placement-server process to test from outside."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

_LISTENING = re.compile(r"placement-server: listening on (\S+)")
_START_SECONDS = 60
_STOP_SECONDS = 40


class Served:
    """``placement-server serve`` on a free port, its output kept."""

    def __init__(
        self, directory: Path, *arguments: str, config: str = "", configured: bool = True
    ) -> None:
        given = ["--port", "0", *arguments]
        if configured:
            config_file = directory / "placement.conf"
            config_file.write_text(
                f"[placement_database]\nconnection = sqlite:///{directory}/placement.db\n"
                "sync_on_startup = true\n[api]\nauth_strategy = noauth2\n"
                f"[oslo_policy]\nenforce_new_defaults = false\n{config}"
            )
            given += ["--config-file", str(config_file)]
        self.process = subprocess.Popen(
            command(given), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
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
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.append(line)
            found = _LISTENING.search(line)
            if found:
                self.url = found[1]
                self._listening.set()
        self._listening.set()

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


def command(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "placement_server.cmd.serve", "serve", *arguments]
