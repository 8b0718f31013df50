"""A placement-server process for tests that speak HTTP to it."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

import fixtures
import requests

from placement_server.testing.faults import Faults
from placement_server.testing.interception import Interception

START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 40.0
OPEN: Final = "[api]\nauth_strategy = noauth2\n[oslo_policy]\nenforce_new_defaults = false\n"
"""The options of a server that trusts every token."""

_LISTENING: Final = re.compile(rb"^placement-server: listening on (\S+)$", re.MULTILINE)
_POLL_SECONDS: Final = 0.02


Start = Callable[[list[str], IO[Any]], Any]
"""Starts placement-server with arguments, output and errors into a file; returns what is like a
`subprocess.Popen`."""


def start_program(arguments: list[str], output: IO[Any]) -> subprocess.Popen[bytes]:
    """Start placement-server of this installation."""
    return subprocess.Popen(
        [sys.executable, "-m", "placement_server.cmd.serve", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
    )


@contextmanager
def placement_process(
    directory: Path, options: str = OPEN, start: Start = start_program
) -> Iterator[str]:
    """Run a server on a SQLite file in a directory; its URL.

    :param options: the sections of placement.conf beside the database's.
    :raises RuntimeError: it does not serve; the text has its log.
    :raises subprocess.TimeoutExpired: it did not end when it was asked to, and was killed.
    """
    config, log = directory / "placement.conf", directory / "log"
    config.write_text(
        f"[placement_database]\nconnection = sqlite:///{directory}/placement.db\n"
        f"sync_on_startup = true\nsqlite_synchronous = false\n{options}"
    )
    arguments = ["serve", "--config-file", str(config), "--host", "127.0.0.1", "--port", "0"]
    with log.open("wb") as output:
        server = start(arguments, output)
    try:
        yield _url_of(server, log)
    finally:
        server.terminate()
        try:
            server.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
            raise


def _url_of(server: Any, log: Path) -> str:
    """Return the URL of a server once it answers there."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            break
        listening = _LISTENING.search(log.read_bytes())
        if listening is not None:
            url = listening[1].decode()
            try:
                requests.get(url, timeout=5)
            except (requests.ConnectionError, requests.Timeout):
                pass
            else:
                return url
        time.sleep(_POLL_SECONDS)
    raise RuntimeError(
        f"placement-server does not answer; its exit status is {server.poll()}, its log: "
        f"{log.read_text()}"
    )


class PlacementProcessFixture(fixtures.Fixture):
    """A placement-server process, for the time of a test.

    It serves as an installation does: several threads, real HTTP, a restart of its own. Where the
    test needs none of that, `PlacementFixture` starts a hundred times faster.

    :param options: the sections of placement.conf beside the database's.

    :ivar token: the user of requests that carry no token.
    :ivar endpoint: the URL of the API.
    :ivar faults: failures that requests of this process meet.
    """

    def __init__(self, token: str = "admin", options: str = OPEN) -> None:
        super().__init__()
        self.token = token
        self.endpoint = ""
        self.faults = Faults()
        self._options = options

    def _setUp(self) -> None:
        directory = Path(self.useFixture(fixtures.TempDir()).path)
        process = placement_process(directory, self._options)
        self.endpoint = process.__enter__()
        self.addCleanup(process.__exit__, None, None, None)
        self.useFixture(Interception(self.endpoint, self.token, self.faults))
