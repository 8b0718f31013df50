"""Databases that a nemesis may kill and that come back with everything they had confirmed."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable
from pathlib import Path

import psutil

from tests.fixtures.databases import (
    Server,
    install_mariadb,
    install_postgresql,
    mariadb_missing,
    migrate,
    postgresql_missing,
    run_mariadb,
    run_postgresql,
)
from tests.fixtures.ports import free_port
from tests.integration.bank.processes import await_end, await_stop


class PrivateDatabase:
    """One database, with a schema. `port` is None when there is no server to it, as here."""

    kind: str
    port: int | None = None

    def url(self, port: int | None = None) -> str:
        """Where it is; through another `port`, if given."""
        raise NotImplementedError

    def start(self) -> None:
        raise AssertionError("there is no server to start")

    def stop(self) -> None:
        """In an orderly way."""
        raise AssertionError("there is no server to stop")

    def close(self) -> None:
        """End it for good."""

    def kill(self) -> None:
        """kill -9 of all its processes."""
        raise AssertionError("there is no server to kill")

    def kill_one_session(self) -> None:
        """kill -9 of what serves one client, where that is a process of its own."""
        raise AssertionError("sessions are no processes here")

    def family(self) -> list[psutil.Process]:
        """Its processes."""
        return []

    def ended(self) -> bool:
        """Whether it ended by itself."""
        return False


class SQLiteFile(PrivateDatabase):
    """There is no server to kill; the file must survive the death of whoever writes it."""

    kind = "sqlite"

    def __init__(self, directory: Path) -> None:
        self._path = directory / "placement.db"
        migrate(self.url())

    def url(self, port: int | None = None) -> str:
        return f"sqlite:///{self._path}"

    def start(self) -> None:
        """Nothing runs."""


class DatabaseServer(PrivateDatabase):
    """A server whose commits are handed to the kernel before they are confirmed."""

    port: int

    def __init__(self, directory: Path, run: Callable[[Path, int], Server]) -> None:
        """Start a server on the data in a directory."""
        self._directory, self._run = directory, run
        self.port = free_port()
        self.start()
        self.kind = self.server.kind

    def with_schema(self) -> DatabaseServer:
        with self.server.administrator() as connection:
            connection.exec_driver_sql("CREATE DATABASE bank")
        migrate(self.url())
        return self

    def url(self, port: int | None = None) -> str:
        return self.server.url("bank").replace(f":{self.port}/", f":{port or self.port}/")

    def start(self) -> None:
        self.server = self._run(self._directory, self.port)

    def stop(self) -> None:
        if not self.ended():
            gentle = signal.SIGINT if self.kind == "postgresql" else signal.SIGTERM
            main = psutil.Process(self.server.pid)
            main.send_signal(gentle)
            main.wait(300)

    def close(self) -> None:
        self.stop()

    def kill(self) -> None:
        family = self.family()
        # or it would start more processes meanwhile, of which nobody here would know
        family[0].suspend()
        await_stop(family[0])
        family = self.family()
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        # a new server refuses to start while a process of the old one is left
        await_end(family)
        family[0].wait(300)

    def kill_one_session(self) -> None:
        """All others lose theirs too: the server starts over when one died so."""
        for child in psutil.Process(self.server.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):
                if "root bank" in " ".join(child.cmdline()):
                    child.kill()
                    return

    def family(self) -> list[psutil.Process]:
        main = psutil.Process(self.server.pid)
        return [main, *main.children(recursive=True)]

    def ended(self) -> bool:
        with contextlib.suppress(psutil.NoSuchProcess):
            try:
                psutil.Process(self.server.pid).wait(0)
            except psutil.TimeoutExpired:
                return False
        return True


def new_postgresql(directory: Path) -> DatabaseServer:
    # the disk may be small
    wal = {"max_wal_size": "64MB", "min_wal_size": "32MB"}
    install_postgresql(directory, max_connections=200, restart_after_crash="on", **wal)
    return DatabaseServer(directory, run_postgresql).with_schema()


def new_mariadb(directory: Path) -> DatabaseServer:
    install_mariadb(directory)

    def run(directory: Path, port: int) -> Server:
        options = ("--innodb-flush-log-at-trx-commit=2", "--skip-log-bin")
        return run_mariadb(directory, *options, port=port)

    return DatabaseServer(directory, run).with_schema()


MAKERS: dict[str, Callable[[Path], PrivateDatabase]] = {
    "sqlite": SQLiteFile,
    "postgresql": new_postgresql,
    "mariadb": new_mariadb,
}


def missing(kind: str) -> str | None:
    """Why there can be no such database here."""
    if kind == "sqlite":
        return None
    return postgresql_missing() if kind == "postgresql" else mariadb_missing()
