"""Clients that are slow on purpose keep nobody waiting; those with slow heads are cut off."""

from __future__ import annotations

import contextlib
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

from tests.functional.agent.processes import eventually

from .served import ADMIN, ServerProcess

MANY = 12
"""Three times as many as the requests that the server works on at a time."""

BIG = 40_000
"""So many aggregates that an answer with them takes long and fills the buffers on its way."""

PROVIDER = "4e8e5957-649f-477b-9e5b-f1f75b21c03c"

HEAD = b"GET /traits HTTP/1.1\r\nHost: x\r\nX-Auth-Token: admin\r\n"
SLOW_BODY = (
    b"POST /resource_providers HTTP/1.1\r\nHost: x\r\nX-Auth-Token: admin\r\n"
    b"Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n{"
)
SLOW_CHUNKS = (
    b"POST /resource_providers HTTP/1.1\r\nHost: x\r\nX-Auth-Token: admin\r\n"
    b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n40\r\n{"
)
# Asked for often enough to fill all buffers on the way.
BIG_ANSWERS = (
    20
    * (
        f"GET /resource_providers/{PROVIDER}/aggregates HTTP/1.1\r\nHost: x\r\n"
        "X-Auth-Token: admin\r\nOpenStack-API-Version: placement 1.39\r\n\r\n"
    ).encode()
)
BEGINNINGS = {
    "says nothing": b"",
    "sends its headers slowly": HEAD,
    "sends its body slowly": SLOW_BODY,
    "sends its chunks slowly": SLOW_CHUNKS,
    "never takes its answers": BIG_ANSWERS,
}


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., ServerProcess]]:
    with contextlib.ExitStack() as servers:

        def start(*arguments: str, timeout: float = 600, aggregates: int = 0) -> ServerProcess:
            server = ServerProcess(
                tmp_path,
                *("--workers", "1", "--threads", "4", *arguments),
                config=f"[placement_server]\nclient_timeout = {timeout}\n",
            )
            servers.callback(server.stop)
            body = {"name": "big", "uuid": PROVIDER}
            ask(server, "POST", "/resource_providers", json=body)
            put_in_aggregates(tmp_path / "placement.db", aggregates)
            return server

        yield start


def put_in_aggregates(database: Path, number: int) -> None:
    """Put the only provider into more aggregates than one request may name."""
    uuids = [(n, f"{n:08}-0000-4000-8000-0000000000aa") for n in range(number)]
    with contextlib.closing(sqlite3.connect(database, timeout=30)) as connection, connection:
        (provider,) = connection.execute("SELECT id FROM resource_providers").fetchone()
        connection.executemany("INSERT INTO placement_aggregates (id, uuid) VALUES (?, ?)", uuids)
        connection.executemany(
            "INSERT INTO resource_provider_aggregates (resource_provider_id, aggregate_id)"
            " VALUES (?, ?)",
            [(provider, n) for n, _uuid in uuids],
        )


def ask(
    server: ServerProcess, method: str, path: str, json: Mapping[str, Any] | None = None
) -> requests.Response:
    answer = server.ask(method, path, timeout=120, json=json)
    assert answer.ok, answer.text
    return answer


def connect(server: ServerProcess) -> socket.socket:
    connection = socket.socket()
    # A small window, so that an answer does not fit into the buffers on the way.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(30)
    connection.connect(server.address)
    return connection


@contextlib.contextmanager
def slow_clients(
    server: ServerProcess, beginning: bytes, count: int
) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as connections:
        slow = [connections.enter_context(connect(server)) for _ in range(count)]
        for connection in slow:
            connection.sendall(beginning)
        yield slow


@pytest.mark.parametrize("beginning", BEGINNINGS.values(), ids=BEGINNINGS.keys())
def test_others_are_served_while_many_clients_are_slow(
    serve: Callable[..., ServerProcess], beginning: bytes
) -> None:
    server = serve(aggregates=BIG if beginning == BIG_ANSWERS else 0)
    with slow_clients(server, beginning, MANY) as slow:
        for _ in range(10):
            for connection in slow:
                if beginning not in (b"", BIG_ANSWERS):
                    connection.sendall(b"x: y\r\n" if beginning == HEAD else b" ")
            # which gives up long before the slow ones are cut off
            ask(server, "GET", "/traits")


@pytest.mark.parametrize("more", [b"", b"x: y\r\n"])
def test_a_client_that_sends_its_head_too_slowly_is_cut_off(
    serve: Callable[..., ServerProcess], more: bytes
) -> None:
    server = serve(timeout=1.0)
    with slow_clients(server, HEAD, 3) as slow:
        worker = psutil.Process(server.process.pid).children()[0]
        ports = {connection.getsockname()[1] for connection in slow}

        def are_gone() -> bool:
            for connection in slow:
                with contextlib.suppress(OSError):
                    connection.sendall(more)
            return not ports & served_ports(worker)

        eventually(are_gone, "the connections are gone")
        ask(server, "GET", "/traits")
    assert "Traceback" not in server.output


def test_it_stops_while_clients_send_their_heads_slowly(
    serve: Callable[..., ServerProcess],
) -> None:
    server = serve(timeout=2.0)
    with slow_clients(server, HEAD, MANY):
        ask(server, "GET", "/traits")
        assert server.stop() == 0


def test_the_work_of_a_slow_search_is_not_held_against_its_client(
    serve: Callable[..., ServerProcess],
) -> None:
    # Twelve requests for four turns, each longer than half of the time that clients have.
    server = serve(timeout=1.0, aggregates=BIG)
    statuses: list[int] = []

    def search() -> None:
        with requests.Session() as session:
            for _ in range(2):
                path = f"/resource_providers/{PROVIDER}/aggregates"
                answer = session.get(f"{server.url}{path}", headers=ADMIN, timeout=120)
                statuses.append(answer.status_code)

    threads = [threading.Thread(target=search) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [200] * 24


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_beyond_the_limit_is_400_and_not_kept_in_memory(
    serve: Callable[..., ServerProcess], chunked: bool
) -> None:
    server = serve()
    worker = psutil.Process(server.process.pid).children()[0]
    ask(server, "GET", "/traits")  # the first request takes memory that stays
    before = worker.memory_info().rss
    piece = b"x" * 100_000

    def pieces() -> Iterator[bytes]:
        yield b'{"name": "'
        for _ in range(400):
            yield piece
        yield b'"}'

    body = pieces() if chunked else b"".join(pieces())
    answer = requests.post(
        f"{server.url}/resource_providers",
        data=body,
        headers={**ADMIN, "Content-Type": "application/json"},
        timeout=60,
    )
    assert answer.status_code == 400
    (error,) = answer.json()["errors"]
    assert error["code"] == "placement.undefined_code"
    assert "Malformed JSON: the body is longer than 8388608 bytes" in error["detail"]
    # A chunked one is read up to the limit: its length is not known before.
    assert worker.memory_info().rss - before < (30_000_000 if chunked else 5_000_000)
    ask(server, "GET", "/traits")


def served_ports(worker: psutil.Process) -> set[int]:
    return {
        connection.raddr.port for connection in worker.net_connections("tcp") if connection.raddr
    }
