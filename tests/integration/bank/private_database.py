"""Databases that a nemesis may kill and that come back with everything they had confirmed."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import psutil
import sqlalchemy as sa

from tests.fixtures.databases import (
    free_port,
    mariadb_missing,
    migrate,
    postgresql_missing,
)
from tests.integration.bank.processes import await_end, await_stop

_WAIT = 300.0
_POSTGRESQL = Path("/usr/lib/postgresql")


class PrivateDatabase(Protocol):
    """One database, with a schema. `port` is None when there is no server to it."""

    kind: str
    port: int | None

    def url(self, port: int | None = None) -> str:
        """Where it is; through another `port`, if given."""

    def start(self) -> None: ...

    def stop(self) -> None:
        """In an orderly way."""

    def close(self) -> None:
        """End it for good."""

    def kill(self) -> None:
        """kill -9 of all its processes."""

    def kill_one_session(self) -> None:
        """kill -9 of what serves one client, where that is a process of its own."""

    def family(self) -> list[psutil.Process]:
        """Its processes."""

    def ended(self) -> bool:
        """Whether it ended by itself."""


class SQLiteFile:
    """There is no server to kill; the file must survive the death of whoever writes it."""

    kind = "sqlite"
    port: int | None = None

    def __init__(self, directory: Path) -> None:
        self._path = directory / "placement.db"
        migrate(self.url())

    def url(self, port: int | None = None) -> str:
        return f"sqlite:///{self._path}"

    def start(self) -> None:
        """Nothing runs."""

    def stop(self) -> None:
        """Nothing runs."""

    def close(self) -> None:
        """Nothing runs."""

    def kill(self) -> None:
        raise AssertionError("there is no server to kill")

    def kill_one_session(self) -> None:
        raise AssertionError("there is no server to kill")

    def family(self) -> list[psutil.Process]:
        return []

    def ended(self) -> bool:
        return False


class _Server:
    kind: str
    scheme: str
    maintenance: str
    command: list[str]
    gentle: signal.Signals

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port: int | None = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, port: int | None = None) -> str:
        return self._address("bank", port)

    def _address(self, database: str, port: int | None = None) -> str:
        return f"{self.scheme}://root@127.0.0.1:{port or self.port}/{database}"

    def start(self) -> None:
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._await(self._answers)

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(self.gentle)
            self._process.wait(_WAIT)
            self._process = None

    def close(self) -> None:
        self.stop()

    def kill(self) -> None:
        assert self._process is not None
        # or it would start more processes meanwhile, of which nobody here would know
        self._process.send_signal(signal.SIGSTOP)
        await_stop(psutil.Process(self._process.pid))
        family = self.family()
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait(_WAIT)
        self._process = None
        # a new server refuses to start while a process of the old one is left
        await_end(family[1:])

    def kill_one_session(self) -> None:
        raise AssertionError("sessions are no processes here")

    def family(self) -> list[psutil.Process]:
        assert self._process is not None
        main = psutil.Process(self._process.pid)
        return [main, *main.children(recursive=True)]

    def ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    @contextlib.contextmanager
    def administrator(self) -> Iterator[sa.Connection]:
        """A connection that is in no transaction."""
        engine = sa.create_engine(
            self._address(self.maintenance), isolation_level="AUTOCOMMIT", poolclass=sa.NullPool
        )
        with engine.connect() as connection:
            yield connection

    def _answers(self) -> None:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError((self.directory / "log").read_text(errors="replace"))
        with self.administrator():
            pass

    def _await(self, ready: Callable[[], None]) -> None:
        deadline = time.monotonic() + _WAIT
        while True:
            try:
                return ready()
            except (sa.exc.DBAPIError, OSError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def _create(self) -> None:
        with self.administrator() as connection:
            connection.exec_driver_sql("CREATE DATABASE bank")
        migrate(self.url())


class PostgreSQL(_Server):
    """Without fsync, but with every commit handed to the kernel before it is confirmed."""

    kind = "postgresql"
    scheme = "postgresql+psycopg"
    maintenance = "postgres"
    gentle = signal.SIGINT

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._as_user(directory)
        self._run("initdb", "-D", str(self._data), "-A", "trust", "-U", "root",
                  "--no-sync", "-E", "UTF8", "--locale=C.UTF-8")  # fmt: skip
        self._configure(
            listen_addresses="127.0.0.1",
            unix_socket_directories="",
            fsync="off",
            full_page_writes="off",
            max_connections=200,
            restart_after_crash="on",
            # the disk may be small
            max_wal_size="64MB",
            min_wal_size="32MB",
        )
        self.start()
        self._create()

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    def _as_user(self, directory: Path) -> None:
        """Give the directory to the user that the server runs as."""
        self._prefix: list[str] = []
        initdb = shutil.which("initdb") or sorted(_POSTGRESQL.glob("*/bin/initdb"))[-1]
        self._binaries = Path(initdb).resolve().parent
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(directory, user.pw_uid, user.pw_gid)
            self._prefix = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        self.command = [*self._prefix, str(self._binaries / "postgres"), "-D", str(self._data)]

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [*self._prefix, str(self._binaries / program), *arguments],
            cwd=self.directory,
            check=True,
            capture_output=True,
        )

    def _configure(self, **settings: object) -> None:
        with (self._data / "postgresql.conf").open("a") as conf:
            conf.writelines(f"{name} = '{value}'\n" for name, value in settings.items())
            conf.write(f"port = '{self.port}'\n")

    def apply(self, **settings: str) -> None:
        """Change settings of the running server."""
        with self.administrator() as connection:
            for name, value in settings.items():
                connection.exec_driver_sql(f"ALTER SYSTEM SET {name} = '{value}'")
            connection.exec_driver_sql("SELECT pg_reload_conf()")

    def kill_one_session(self) -> None:
        """All others lose theirs too: the server starts over when one died so."""
        assert self._process is not None
        for child in psutil.Process(self._process.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):
                if "root bank" in " ".join(child.cmdline()):
                    child.kill()
                    return


class MariaDB(_Server):
    """With every commit handed to the kernel before it is confirmed."""

    kind = "mariadb"
    scheme = "mysql+pymysql"
    maintenance = "mysql"
    gentle = signal.SIGTERM

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        path = f"{os.environ.get('PATH', '')}:/usr/sbin"
        user = pwd.getpwuid(os.geteuid()).pw_name
        data, temporary = directory / "data", directory / "tmp"
        # a server that starts deletes the temporary tables that it finds, also those of another
        temporary.mkdir()
        subprocess.run(
            [shutil.which("mariadb-install-db", path=path) or "", "--no-defaults",
             f"--datadir={data}", f"--tmpdir={temporary}", f"--user={user}",
             "--auth-root-authentication-method=normal", "--skip-test-db"],
            cwd=directory, check=True, capture_output=True,
        )  # fmt: skip
        self.command = [
            shutil.which("mariadbd", path=path) or "", "--no-defaults", f"--user={user}",
            f"--datadir={data}", f"--tmpdir={temporary}", f"--socket={directory / 's.sock'}",
            f"--pid-file={directory / 'pid'}", "--bind-address=127.0.0.1", f"--port={self.port}",
            "--innodb-buffer-pool-size=64M", "--innodb-flush-log-at-trx-commit=2",
            "--skip-log-bin", "--skip-name-resolve", "--max-connections=200",
        ]  # fmt: skip
        self.start()
        self._create()

    def _address(self, database: str, port: int | None = None) -> str:
        # without TLS, for which PyMySQL would read all CAs of this machine with each connection
        return f"{super()._address(database, port)}?ssl_disabled=true"


MAKERS: dict[str, Callable[[Path], PrivateDatabase]] = {
    "sqlite": SQLiteFile,
    "postgresql": PostgreSQL,
    "mariadb": MariaDB,
}


def missing(kind: str) -> str | None:
    """Why there can be no such database here."""
    if kind == "sqlite":
        return None
    return postgresql_missing() if kind == "postgresql" else mariadb_missing()
