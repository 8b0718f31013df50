"""Requests that wait for changes at a real server: they cost others nothing, and end in time."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from .served import EXTENDED_ADMIN, ServerProcess

METRICS = "/-/metrics"
MOST = 3
DEADLINE = 20.0


@contextlib.contextmanager
def serving(directory: Path) -> Iterator[ServerProcess]:
    config = f"[placement_server]\nmax_watchers = {MOST}\nmetrics_path = {METRICS}\n"
    arguments = ("--workers", "1", "--threads", "1")
    with ServerProcess(directory, *arguments, config=config, console_script=True) as server:
        yield server
    assert "Traceback" not in server.output


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(tmp_path_factory.mktemp("served")) as server:
        yield server


@pytest.fixture
def server(shared_server: ServerProcess) -> ServerProcess:
    """A server on which nobody waits, also none whose client a test has just closed."""
    until_waiting(shared_server, 0)
    return shared_server


def ask(server: ServerProcess, **params: int) -> requests.Response:
    return requests.get(f"{server.url}/changes", params=params, headers=EXTENDED_ADMIN, timeout=70)


def write(server: ServerProcess) -> str:
    created = str(uuid.uuid4())
    answer = requests.post(
        f"{server.url}/resource_providers",
        json={"name": created, "uuid": created},
        headers=EXTENDED_ADMIN,
        timeout=30,
    )
    assert answer.status_code == 200
    return created


def waiting_number(server: ServerProcess) -> int:
    text = requests.get(f"{server.url}{METRICS}", timeout=30).text
    return int(
        sum(
            float(line.rpartition(" ")[2])
            for line in text.splitlines()
            if line.startswith("placement_changes_watchers")
        )
    )


def until_waiting(server: ServerProcess, number: int) -> None:
    deadline = time.monotonic() + DEADLINE
    while waiting_number(server) != number:
        assert time.monotonic() < deadline, f"{waiting_number(server)} requests wait"


class WaitingConnection:
    """A connection on which a request waits."""

    def __init__(self, server: ServerProcess, after: int) -> None:
        self.connection = socket.create_connection(server.address, timeout=70)
        self.send(after)

    def send(self, after: int) -> None:
        head = "".join(f"{name}: {value}\r\n" for name, value in EXTENDED_ADMIN.items())
        self.connection.sendall(
            f"GET /changes?after={after}&wait=60 HTTP/1.1\r\nHost: x\r\n{head}\r\n".encode()
        )

    def roots(self) -> list[str]:
        answer = b""
        while not answer.endswith(b"}"):
            piece = self.connection.recv(65536)
            assert piece, answer
            answer += piece
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        return [change["root_provider_uuid"] for change in json.loads(body)["changes"]]

    def close(self) -> None:
        self.connection.close()


@contextlib.contextmanager
def watching(server: ServerProcess, number: int) -> Iterator[list[WaitingConnection]]:
    after = ask(server).json()["last"]
    with contextlib.ExitStack() as stack:
        watchers = [
            stack.enter_context(contextlib.closing(WaitingConnection(server, after)))
            for _ in range(number)
        ]
        until_waiting(server, number)
        yield watchers


def test_waiting_requests_take_no_thread_and_all_are_answered(server: ServerProcess) -> None:
    with watching(server, MOST) as watchers:
        created = write(server)
        assert [watcher.roots() for watcher in watchers] == [[created]] * MOST


def test_the_connection_is_kept_after_the_answer(server: ServerProcess) -> None:
    with watching(server, 1) as (watcher,):
        for _ in range(2):
            created = write(server)
            assert watcher.roots() == [created]
            watcher.send(ask(server).json()["last"])
            until_waiting(server, 1)
        # a client that goes away keeps its place until the end of its wait
        write(server)
        watcher.roots()


def test_a_request_without_a_place_is_told_to_come_again(server: ServerProcess) -> None:
    after = ask(server).json()["last"]
    with watching(server, MOST) as watchers:
        refused = ask(server, after=after, wait=60)
        assert refused.status_code == 503
        assert "retry-after" in refused.headers
        created = write(server)
        assert [watcher.roots() for watcher in watchers] == [[created]] * MOST
    assert ask(server, after=after, wait=60).json()["changes"]


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_ends_answers_at_once(tmp_path: Path, end: signal.Signals) -> None:
    with serving(tmp_path) as server, watching(server, 2) as watchers:
        begun = time.monotonic()
        server.process.send_signal(end)
        assert [watcher.roots() for watcher in watchers] == [[], []]
        assert server.process.wait(DEADLINE) == 0
        assert time.monotonic() - begun < DEADLINE
