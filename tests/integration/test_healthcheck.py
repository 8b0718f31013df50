"""The health check follows the database: a real PostgreSQL that is stopped, ended and started."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.fixtures.databases import postgresql_missing
from tests.functional.agent.processes import eventually
from tests.functional.api.served import ServerProcess
from tests.integration.bank.private_database import DatabaseServer, new_postgresql
from tests.integration.nemesis.machine import stopped

ADMIN = {"X-Auth-Token": "admin"}
TURNS = 2
"""Requests that the server works on at a time."""


@pytest.fixture
def database() -> Iterator[DatabaseServer]:
    reason = postgresql_missing()
    if reason is not None:
        pytest.skip(reason)
    # Not below the directories of pytest, which are nobody else's: it runs as another user.
    with tempfile.TemporaryDirectory(prefix="health-") as directory:
        server = new_postgresql(Path(directory))
        yield server
        server.stop()


@pytest.fixture
def served(database: DatabaseServer, tmp_path: Path) -> Iterator[ServerProcess]:
    server = ServerProcess(
        tmp_path,
        *("--workers", "1", "--threads", str(TURNS)),
        config=(
            f"[placement_database]\nconnection = {database.url()}\n"
            "[placement_server]\nhealthcheck_path = /-/healthy\n"
        ),
    )
    yield server
    server.stop()


def health(served: ServerProcess, accept: str = "text/plain") -> requests.Response:
    url = f"{served.url}/-/healthy"
    return requests.get(url, headers={"Accept": accept}, timeout=10)


def test_it_is_503_while_the_database_does_not_answer_and_requests_wait_for_it(
    served: ServerProcess, database: DatabaseServer
) -> None:
    assert health(served).status_code == 200
    requests.get(f"{served.url}/resource_providers", headers=ADMIN, timeout=30)
    waiters = []
    # its processes take connections and bytes, as the kernel does that, and answer nothing
    with stopped(database.family()):
        # More than the server works on at a time, so that others wait behind them.
        for _ in range(2 * TURNS):
            waiting = threading.Thread(
                target=lambda: requests.get(
                    f"{served.url}/resource_providers", headers=ADMIN, timeout=60
                )
            )
            waiting.start()
            waiters.append(waiting)
        eventually(lambda: health(served).status_code == 503, "it is 503")
        answer = health(served, "application/json")
        assert answer.status_code == 503
        assert answer.json() == {"detailed": False, "reasons": ["DATABASE UNAVAILABLE"]}
        assert health(served).text == "DATABASE UNAVAILABLE"
        assert requests.head(f"{served.url}/-/healthy", timeout=10).status_code == 503
    for waiting in waiters:
        waiting.join()
    eventually(lambda: health(served).status_code == 200, "it is 200")


def test_it_is_503_while_the_database_is_down(
    served: ServerProcess, database: DatabaseServer
) -> None:
    assert health(served).text == ""
    database.stop()
    eventually(lambda: health(served).status_code == 503, "it is 503")
    database.start()
    eventually(lambda: health(served).status_code == 200, "it is 200")
    assert requests.head(f"{served.url}/-/healthy", timeout=10).status_code == 204
    assert "Traceback" not in served.output
