"""Kills, restarts and cut connections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tests.integration.bank.proxy import Cut
from tests.integration.nemesis.stage import Fault, Stage

_REQUESTS = (b"PUT /allocations", b"POST /allocations", b"POST /reshaper", b"DELETE /allocations")
_SERVERS = frozenset({"postgresql", "mariadb", "standby"})
# prepared statements do not show their text any more, but how the transaction began does
_BEGIN = b"BEGIN ISOLATION LEVEL READ COMMITTED"
_INSERT = b"INSERT INTO changes"
_IN_A_WRITE = {"postgresql": _BEGIN, "standby": _BEGIN, "mariadb": _INSERT, "galera": _INSERT}


class KillWorker(Fault):
    def strike(self, stage: Stage) -> str:
        stage.service.kill_worker(stage.dice)
        return "kill -9 of a worker"


class KillServer(Fault):
    def strike(self, stage: Stage) -> str:
        stage.service.kill()
        stage.to_service.upstream = stage.service.start()
        return "kill -9 of the server"


class RestartServer(Fault):
    def strike(self, stage: Stage) -> str:
        status = stage.service.stop()
        assert status == 0, f"the server ended with {status} after SIGTERM"
        stage.to_service.upstream = stage.service.start()
        return "restart of the server"


@dataclass(frozen=True)
class CutRequest(Fault):
    """A connection of a client breaks, at any kind of write."""

    cut: Cut

    def strike(self, stage: Stage) -> str:
        marker = stage.dice.choice(_REQUESTS)
        sprung = stage.to_service.trap(marker, self.cut)
        while not sprung.is_set():
            stage.await_writes(1)
        return f"cut of {marker.decode()} {self.cut.value}"


class KillDatabase(Fault):
    databases: ClassVar[frozenset[str] | None] = _SERVERS

    def strike(self, stage: Stage) -> str:
        stage.database.kill()
        stage.database.start()
        return "kill -9 of the database"


class RestartDatabase(Fault):
    databases: ClassVar[frozenset[str] | None] = _SERVERS

    def strike(self, stage: Stage) -> str:
        stage.database.stop()
        stage.database.start()
        return "restart of the database"


class KillWorkerAndDatabase(Fault):
    databases: ClassVar[frozenset[str] | None] = _SERVERS

    def strike(self, stage: Stage) -> str:
        stage.database.kill()
        stage.service.kill_worker(stage.dice)
        stage.database.start()
        return "kill -9 of a worker and of the database"


class KillSession(Fault):
    databases: ClassVar[frozenset[str] | None] = frozenset({"postgresql", "standby"})

    def strike(self, stage: Stage) -> str:
        stage.database.kill_one_session()
        return "kill -9 of a database session"


@dataclass(frozen=True)
class CutStatement(Fault):
    """A connection to the database breaks, at a commit or at whichever statement is next."""

    marker: bytes
    cut: Cut | None = None
    databases: ClassVar[frozenset[str] | None] = frozenset(_IN_A_WRITE)

    def strike(self, stage: Stage) -> str:
        assert stage.to_database is not None
        cut = self.cut or stage.dice.choice(list(Cut))
        sprung = stage.to_database.trap(self.marker, cut, _IN_A_WRITE[stage.database.kind])
        while not sprung.is_set():
            stage.await_writes(1)
        return f"cut of {self.marker.decode() or 'a statement'} {cut.value}"


KILLS: tuple[Fault, ...] = (
    KillWorker(),
    KillServer(),
    RestartServer(),
    *(CutRequest(cut) for cut in Cut),
    KillDatabase(),
    RestartDatabase(),
    KillWorkerAndDatabase(),
    KillSession(),
    *(CutStatement(b"COMMIT", cut) for cut in Cut),
    CutStatement(b""),
)
