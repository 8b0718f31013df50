"""PostgreSQL with a standby that takes over, at an address that moves with it."""

from __future__ import annotations

import time
from pathlib import Path

import psutil

from tests.fixtures.databases import run_as_postgresql, run_postgresql
from tests.integration.bank.private_database import (
    DatabaseServer,
    PrivateDatabase,
    new_postgresql,
)
from tests.integration.bank.proxy import Proxy
from tests.integration.nemesis.machine import stopped
from tests.integration.nemesis.stage import Fault, Stage, on

_NAME = "standby"


def _standby_of(primary: DatabaseServer, directory: Path) -> DatabaseServer:
    """Return a copy of a primary, which follows it until it is promoted."""
    directory.mkdir()
    source = f"host=127.0.0.1 port={primary.port} user=root application_name={_NAME}"
    options = ("-R", "--no-sync", "--checkpoint=fast", "--wal-method=stream")
    data = str(directory / "data")
    run_as_postgresql(directory, "pg_basebackup", "-D", data, "-d", source, *options)
    return DatabaseServer(directory, run_postgresql)


def _apply(server: DatabaseServer, setting: str) -> None:
    """Change a setting of a running server."""
    with server.server.administrator() as connection:
        connection.exec_driver_sql(f"ALTER SYSTEM SET {setting}")
        connection.exec_driver_sql("SELECT pg_reload_conf()")


class Pair(PrivateDatabase):
    """A primary and its standby, which has what is confirmed. Clients use `port`, which leads to
    the primary."""

    kind = "standby"

    def __init__(self, directory: Path) -> None:
        # its user has to enter
        directory.chmod(0o755)
        self._directory = directory
        self._number = 0
        (directory / "primary").mkdir()
        self._primary = new_postgresql(directory / "primary")
        self._address = Proxy(self._primary.port or 0)
        self.port = self._address.port
        try:
            self._follow()
        except BaseException:
            self._primary.kill()
            raise

    def url(self, port: int | None = None) -> str:
        return self._primary.url(port or self.port)

    def start(self) -> None:
        self._primary.start()

    def stop(self) -> None:
        self._primary.stop()

    def close(self) -> None:
        self.standby.stop()
        self._primary.stop()
        self._address.close()

    def kill(self) -> None:
        self._primary.kill()

    def kill_one_session(self) -> None:
        self._primary.kill_one_session()

    def family(self) -> list[psutil.Process]:
        return self._primary.family()

    def ended(self) -> bool:
        return self._primary.ended()

    def fail_over(self, *, hang: bool, behind: float) -> None:
        """Promote the standby of a primary that is lost, and give it a standby of its own.

        :param hang: whether the primary stands still rather than ends, as with a lost network.
        :param behind: seconds for which nothing is sent to the standby before.
        """
        old = self._primary
        with stopped(self._senders() if behind else []):
            time.sleep(behind)
            with stopped(old.family() if hang else []):
                if not hang:
                    old.kill()
                self._primary = self.standby
                with self._primary.server.administrator() as connection:
                    # it takes writes when this returns
                    promoting = "SELECT pg_promote(true, 60)"
                    assert connection.exec_driver_sql(promoting).scalar_one()
                assert self._primary.port is not None
                self._address.lead_to(self._primary.port)
        if hang:
            old.kill()
        self._follow()

    def _senders(self) -> list[psutil.Process]:
        return [
            process
            for process in self._primary.family()
            if "walsender" in " ".join(process.cmdline())
        ]

    def _follow(self) -> None:
        """Give the primary a standby."""
        self._number += 1
        _apply(self._primary, "synchronous_standby_names = ''")
        self.standby = _standby_of(self._primary, self._directory / f"standby-{self._number}")
        _apply(self._primary, f"synchronous_standby_names = '{_NAME}'")
        with self._primary.server.administrator() as connection:
            deadline = time.monotonic() + 60
            query = "SELECT state || ' ' || sync_state FROM pg_stat_replication"
            while (state := connection.exec_driver_sql(query).scalar()) != "streaming sync":
                assert time.monotonic() < deadline, f"the standby is {state}"
                time.sleep(0.05)


def promote(stage: Stage) -> str:
    """The primary is lost, and its standby takes over."""
    assert isinstance(stage.database, Pair)
    hang, behind = stage.dice.random() < 0.5, stage.dice.choice((0.0, 0.3))
    stage.database.fail_over(hang=hang, behind=behind)
    how = "stood still" if hang else "was killed"
    return f"standby promoted, {behind} s behind, when the primary {how}"


def stop_standby(stage: Stage) -> str:
    """A standby stands still: commits wait for it."""
    assert isinstance(stage.database, Pair)
    seconds = stage.pause()
    with stopped(stage.database.standby.family()):
        time.sleep(seconds)
    return f"the standby stopped for {seconds:.1f} s"


PROMOTIONS: tuple[Fault, ...] = tuple(Fault(do, on("standby")) for do in (promote, stop_standby))
