"""Workers killed one after the other: the server stays, and others go on serving."""

from __future__ import annotations

import contextlib
import http.client
import threading
import uuid
from pathlib import Path

import psutil
import pytest
import requests

from tests.functional.agent.processes import eventually

from .served import ADMIN, ServerProcess

pytestmark = pytest.mark.waiting

KILLS = 5


def running_workers(server: ServerProcess) -> list[psutil.Process]:
    children = psutil.Process(server.process.pid).children()
    return [child for child in children if child.status() != psutil.STATUS_ZOMBIE]


def created(server: ServerProcess) -> str:
    """Return a provider that the server has acknowledged; refused connections are tried again."""
    name = str(uuid.uuid4())

    def is_acknowledged() -> bool:
        with contextlib.suppress(requests.ConnectionError):
            body = {"name": name, "uuid": name}
            answer = server.ask("POST", "/resource_providers", json=body)
            # 409: a worker was killed behind its commit
            assert answer.status_code in (200, 409), answer.text
            return True
        return False

    eventually(is_acknowledged, "an answer")
    return name


@pytest.mark.parametrize("workers", [1, 3])
def test_a_server_whose_workers_are_all_killed_time_after_time_loses_nothing(
    tmp_path: Path, workers: int
) -> None:
    with ServerProcess(tmp_path, "--workers", str(workers)) as server:
        names = set()
        for _ in range(KILLS):
            names.add(created(server))
            for worker in eventually(lambda: running_workers(server), "a worker"):
                worker.kill()
        names.add(created(server))
        eventually(lambda: len(running_workers(server)) == workers, "all workers")
        listed = server.ask("GET", "/resource_providers").json()["resource_providers"]
        assert {provider["name"] for provider in listed} == names


def test_a_worker_serves_on_while_another_is_killed_time_after_time(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, "--workers", "2") as server:
        eventually(lambda: len(running_workers(server)) == 2, "both workers")
        connection = http.client.HTTPConnection(*server.address, timeout=30)

        def ask() -> int:
            connection.request("GET", "/traits", headers=ADMIN)
            with connection.getresponse() as answer:
                answer.read()
                return answer.status

        assert ask() == 200
        port = connection.sock.getsockname()[1]
        (serving_worker,) = (
            worker
            for worker in running_workers(server)
            if port in {peer.raddr.port for peer in worker.net_connections("tcp") if peer.raddr}
        )
        statuses: list[int] = []
        stopping = threading.Event()
        failures: list[Exception] = []

        def go_on() -> None:
            try:
                while not stopping.is_set():
                    statuses.append(ask())
            except (OSError, http.client.HTTPException) as error:
                failures.append(error)

        client = threading.Thread(target=go_on)
        client.start()

        def others() -> set[psutil.Process]:
            return set(running_workers(server)) - {serving_worker}

        try:
            for _ in range(KILLS):
                for other in eventually(others, "another worker"):
                    other.kill()
                    other.wait(30)
            eventually(others, "another worker")
        finally:
            stopping.set()
            client.join()
            connection.close()
        assert failures == []
        assert set(statuses) == {200}
        assert serving_worker in running_workers(server)
