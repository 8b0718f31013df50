"""Clients that keep their connections are not kept waiting by one worker while another is idle."""

from __future__ import annotations

import contextlib
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from .served import Served

#: Enough for the worker that has most of them to have eight.
MANY = 16
GET = b"GET /resource_providers HTTP/1.1\r\nHost: x\r\nX-Auth-Token: admin\r\n\r\n"
UNKNOWN = GET.replace(b"resource_providers", b"nothing")
WRITE = (
    b"PUT /traits/CUSTOM_WAITED HTTP/1.1\r\nHost: x\r\nX-Auth-Token: admin\r\n"
    b"OpenStack-API-Version: placement 1.39\r\n\r\n"
)


class Kept:
    """A connection that has had an answer already."""

    def __init__(self, server: Served) -> None:
        self._socket = socket.create_connection(server.address, timeout=20)
        self._received = self._socket.makefile("rb")
        self.port = self._socket.getsockname()[1]
        assert self.ask(GET) == 200

    def send(self, request: bytes) -> None:
        self._socket.sendall(request)

    def answer(self) -> int:
        """The status of an answer, which is read whole."""
        status = int(self._received.readline().split()[1])
        length = 0
        while line := self._received.readline().strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        assert len(self._received.read(length)) == length
        return status

    def ask(self, request: bytes) -> int:
        self.send(request)
        return self.answer()

    def close(self) -> None:
        self._received.close()
        self._socket.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    server = Served(tmp_path, "--workers", "2", "--threads", "1")
    yield server
    assert server.stop() == 0
    assert "Traceback" not in server.output


@pytest.fixture
def kept(served: Served) -> Iterator[list[Kept]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(contextlib.closing(Kept(served))) for _ in range(MANY)]


@pytest.fixture
def busy(served: Served, kept: list[Kept], tmp_path: Path) -> Iterator[list[Kept]]:
    """Connections of one worker, whose only turn at the application the last one of them has."""
    by_owner: dict[frozenset[int], list[Kept]] = {}
    for connection in kept:
        by_owner.setdefault(frozenset(owners(served, connection)), []).append(connection)
    mine = max(by_owner.values(), key=len)
    with contextlib.closing(sqlite3.connect(tmp_path / "placement.db")) as database:
        database.isolation_level = None
        database.execute("BEGIN IMMEDIATE")
        mine[-1].send(WRITE)
        yield mine
        database.execute("ROLLBACK")
    assert mine[-1].answer() == 201


def owners(served: Served, connection: Kept) -> set[int]:
    """The worker that has a connection; none, or a second one, while it is handed over."""
    return {
        worker.pid
        for worker in psutil.Process(served.process.pid).children()
        for held in worker.net_connections("tcp")
        if held.raddr and held.raddr.port == connection.port
    }


def eventually(condition: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.02)


def ask_until_one_moves(served: Served, connections: list[Kept]) -> None:
    """Ask on each of them until the worker that had them all has handed one over."""
    before = owners(served, connections[0])

    def one_has_moved() -> bool:
        assert [connection.ask(GET) for connection in connections] == [200] * len(connections)
        return any(owners(served, connection) != before for connection in connections)

    eventually(one_has_moved)


def test_a_busy_worker_leaves_the_requests_of_its_connections_to_an_idle_one(
    served: Served, busy: list[Kept]
) -> None:
    ask_until_one_moves(served, busy[:-1])


def test_a_request_that_arrives_in_pieces_goes_along(served: Served, busy: list[Kept]) -> None:
    in_pieces, *others = busy[:-1]
    before = owners(served, in_pieces)
    ask_until_one_moves(served, others)
    in_pieces.send(GET[:20])
    eventually(lambda: owners(served, in_pieces).isdisjoint(before))
    in_pieces.send(GET[20:])
    assert in_pieces.answer() == 200


def test_requests_that_came_together_are_answered_in_order(busy: list[Kept]) -> None:
    busy[0].send(GET + UNKNOWN + GET)
    assert [busy[0].answer() for _ in range(3)] == [200, 404, 200]


def test_a_connection_that_waits_for_a_worker_that_dies_is_closed(
    served: Served, busy: list[Kept]
) -> None:
    waiting, *others = busy[:-1]
    working = owners(served, waiting)
    ask_until_one_moves(served, others)
    workers = {worker.pid: worker for worker in psutil.Process(served.process.pid).children()}
    (other,) = workers.keys() - working
    # It takes nothing any more, and does not say so.
    workers[other].suspend()
    waiting.send(GET)
    eventually(lambda: not owners(served, waiting))
    workers[other].kill()
    with pytest.raises((OSError, IndexError)):
        waiting.answer()
