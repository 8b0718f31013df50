"""Kills, restarts and cut connections."""

from __future__ import annotations

from functools import partial

from tests.integration.bank.proxy import Cut
from tests.integration.nemesis.stage import Fault, Stage, on

_REQUESTS = (b"PUT /allocations", b"POST /allocations", b"POST /reshaper", b"DELETE /allocations")
# prepared statements do not show their text any more, but how the transaction began does
_BEGIN = b"BEGIN ISOLATION LEVEL READ COMMITTED"
_INSERT = b"INSERT INTO changes"
_IN_A_WRITE = {"postgresql": _BEGIN, "standby": _BEGIN, "mariadb": _INSERT, "galera": _INSERT}


def kill_worker(stage: Stage) -> str:
    stage.service.kill_worker(stage.dice)
    return "kill -9 of a worker"


def kill_server(stage: Stage) -> str:
    stage.service.kill()
    stage.to_service.upstream = stage.service.start()
    return "kill -9 of the server"


def restart_server(stage: Stage) -> str:
    status = stage.service.stop()
    assert status == 0, f"the server ended with {status} after SIGTERM"
    stage.to_service.upstream = stage.service.start()
    return "restart of the server"


def cut_request(cut: Cut, stage: Stage) -> str:
    """A connection of a client breaks, at any kind of write."""
    marker = stage.dice.choice(_REQUESTS)
    sprung = stage.to_service.trap(marker, cut)
    while not sprung.is_set():
        stage.await_writes(1)
    return f"cut of {marker.decode()} {cut.value}"


def kill_database(stage: Stage) -> str:
    stage.database.kill()
    stage.database.start()
    return "kill -9 of the database"


def restart_database(stage: Stage) -> str:
    stage.database.stop()
    stage.database.start()
    return "restart of the database"


def kill_worker_and_database(stage: Stage) -> str:
    stage.database.kill()
    stage.service.kill_worker(stage.dice)
    stage.database.start()
    return "kill -9 of a worker and of the database"


def kill_session(stage: Stage) -> str:
    stage.database.kill_one_session()
    return "kill -9 of a database session"


def cut_statement(marker: bytes, chosen: Cut | None, stage: Stage) -> str:
    """A connection to the database breaks, at a commit or at whichever statement is next."""
    assert stage.to_database is not None
    cut = chosen or stage.dice.choice(list(Cut))
    sprung = stage.to_database.trap(marker, cut, _IN_A_WRITE[stage.database.kind])
    while not sprung.is_set():
        stage.await_writes(1)
    return f"cut of {marker.decode() or 'a statement'} {cut.value}"


KILLS: tuple[Fault, ...] = (
    *(Fault(strike) for strike in (kill_worker, kill_server, restart_server)),
    *(Fault(partial(cut_request, cut)) for cut in Cut),
    *(
        Fault(strike, on("postgresql", "mariadb", "standby"))
        for strike in (kill_database, restart_database, kill_worker_and_database)
    ),
    Fault(kill_session, on("postgresql", "standby")),
    *(Fault(partial(cut_statement, b"COMMIT", cut), on(*_IN_A_WRITE)) for cut in Cut),
    Fault(partial(cut_statement, b"", None), on(*_IN_A_WRITE)),
)
