"""The real placement-server, started, killed and started again."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import time
from collections.abc import Mapping
from pathlib import Path

import psutil

from tests.fixtures import programs
from tests.integration.bank.processes import await_end

_LISTENING = re.compile(rb"listening on http://127\.0\.0\.1:(\d+)")
_START_SECONDS = 300.0


class Service:
    """`workers` processes of `threads` threads over one database."""

    def __init__(
        self,
        directory: Path,
        database_url: str,
        *,
        workers: int,
        threads: int,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Write the configuration.

        :param environment: what the server's has more than that of this process.
        """
        self._directory = directory
        self._config = directory / "placement.conf"
        self._config.write_text(
            f"[placement_database]\nconnection = {database_url}\nretry_interval = 1\n"
            "sqlite_synchronous = false\n"
            "[api]\nauth_strategy = noauth2\n[oslo_policy]\nenforce_new_defaults = false\n"
        )
        self._environment = {**os.environ, **(environment or {})}
        if "LD_PRELOAD" in self._environment:
            # which a fork would not load
            self._environment["PRELOADED"] = "no"
        self._workers, self._threads = workers, threads
        self._process: programs.Process | None = None
        self._starts = 0

    @property
    def log(self) -> Path:
        """Of the start last made."""
        return self._directory / f"server-{self._starts}.log"

    def start(self) -> int:
        """The port, a new one each time: connections to the dead do not block it."""
        self._starts += 1
        with self.log.open("wb") as log:
            self._process = programs.start(
                "placement-server",
                *("serve", "--config-file", str(self._config), "--host", "127.0.0.1"),
                *("--port", "0"),
                *("--workers", str(self._workers), "--threads", str(self._threads)),
                output=log,
                environment=self._environment,
            )
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            found = _LISTENING.search(self.log.read_bytes())
            if found:
                return int(found[1])
            self.require_running()
            time.sleep(0.02)
        raise AssertionError(f"placement-server did not start: {self.log.read_text()}")

    def require_running(self) -> None:
        """Raises AssertionError with the log when the server ended by itself."""
        if self._process is not None and (status := self._process.poll()) is not None:
            raise AssertionError(
                f"placement-server ended with {status}:\n{self.log.read_text()[-4000:]}"
            )

    def workers(self) -> list[psutil.Process]:
        assert self._process is not None
        return psutil.Process(self._process.pid).children()

    def family(self) -> list[psutil.Process]:
        """The server and its workers."""
        assert self._process is not None
        return [psutil.Process(self._process.pid), *self.workers()]

    def kill_worker(self, dice: random.Random) -> None:
        workers = self.workers()
        if workers:
            with contextlib.suppress(psutil.NoSuchProcess):
                dice.choice(workers).kill()

    def kill(self) -> None:
        """kill -9 of all its processes."""
        assert self._process is not None
        workers = self.workers() if self._process.poll() is None else []
        # first, or it would replace the workers
        self._process.kill()
        for worker in workers:
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.kill()
        self._process.wait()
        await_end(workers)
        self._process = None

    def stop(self) -> int:
        """SIGTERM; returns the exit status once all that was begun is finished."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        status = self._process.wait(_START_SECONDS)
        self._process = None
        return status

    @property
    def runs(self) -> bool:
        return self._process is not None
