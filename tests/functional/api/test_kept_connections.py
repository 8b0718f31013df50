"""Clients that keep their connections are not kept waiting by one worker while another is idle."""

from __future__ import annotations

import contextlib
import select
import signal
import socket
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from . import served as serving
from .served import Served

#: Enough for the worker that has most of them to have eight.
MANY = 16
#: Connections that a worker holds, instead of 1,000.
LIMIT = 40
FEW_CONNECTIONS = (
    f"from placement_server.cmd import serve; serve._CONNECTIONS = {LIMIT}; serve.main()"
)
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

    def has_answer(self, within: float) -> bool:
        """Whether one begins in so many seconds."""
        readable, _, _ = select.select([self._socket], [], [], within)
        return bool(readable)

    def close(self) -> None:
        self._received.close()
        self._socket.close()


def start(
    program: str, directory: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str
) -> Served:
    """The server, run by a program that changes something of it before."""
    command = [sys.executable, "-c", program, "serve"]
    monkeypatch.setattr(serving, "command", lambda given: [*command, *given])
    return Served(directory, *arguments)


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    server = start(FEW_CONNECTIONS, tmp_path, monkeypatch, "--workers", "2", "--threads", "1")
    yield server
    # A test that kills it leaves the workers to end by themselves.
    assert server.stop() in (0, -signal.SIGKILL)
    assert "Traceback" not in server.output


@pytest.fixture
def kept(served: Served) -> Iterator[list[Kept]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(contextlib.closing(Kept(served))) for _ in range(MANY)]


@pytest.fixture
def database(served: Served, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """Of the server, which waits while this has it locked."""
    del served
    with contextlib.closing(sqlite3.connect(tmp_path / "placement.db")) as database:
        database.isolation_level = None
        yield database


@dataclass(frozen=True)
class Busy:
    """Connections of a worker that has no turn left at the application, and of the other one."""

    here: list[Kept]
    there: list[Kept]


@pytest.fixture
def busy(served: Served, kept: list[Kept], database: sqlite3.Connection) -> Iterator[Busy]:
    """The only turn is taken until the database is rolled back."""
    by_owner: dict[frozenset[int], list[Kept]] = {}
    for connection in kept:
        by_owner.setdefault(frozenset(owners(served, connection)), []).append(connection)
    *there, here = sorted(by_owner.values(), key=len)
    working = here.pop()
    working_here = owners(served, working)
    database.execute("BEGIN IMMEDIATE")
    working.send(WRITE)

    def others_wait_or_go() -> bool:
        with contextlib.closing(here.pop()) as one:
            one.send(GET)
            return not one.has_answer(within=1) or owners(served, one) != working_here

    eventually(others_wait_or_go)
    yield Busy(here, [connection for others in there for connection in others])
    database.rollback()
    assert working.answer() == 201


def workers(served: Served) -> list[psutil.Process]:
    return psutil.Process(served.process.pid).children()


def ports(worker: psutil.Process) -> list[int]:
    """Of the clients whose connections a worker has."""
    return [held.raddr.port for held in worker.net_connections("tcp") if held.raddr]


def owners(served: Served, connection: Kept) -> set[int]:
    """The worker that has a connection; none, or a second one, while it is handed over."""
    return {worker.pid for worker in workers(served) if connection.port in ports(worker)}


def here_and_there(served: Served, connection: Kept) -> tuple[psutil.Process, psutil.Process]:
    """The worker that has a connection, and the other one."""
    pids = owners(served, connection)
    (here,) = (worker for worker in workers(served) if worker.pid in pids)
    (there,) = (worker for worker in workers(served) if worker.pid not in pids)
    return here, there


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
    served: Served, busy: Busy
) -> None:
    ask_until_one_moves(served, busy.here)


def test_a_request_that_arrives_in_pieces_goes_along(served: Served, busy: Busy) -> None:
    in_pieces = busy.here[0]
    before = owners(served, in_pieces)
    in_pieces.send(GET[:20])
    eventually(lambda: owners(served, in_pieces).isdisjoint(before))
    in_pieces.send(GET[20:])
    assert in_pieces.answer() == 200


def test_requests_that_came_together_are_answered_in_order(busy: Busy) -> None:
    busy.here[0].send(GET + UNKNOWN + GET)
    assert [busy.here[0].answer() for _ in range(3)] == [200, 404, 200]


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_a_connection_that_waits_for_a_worker_that_ends_is_served_all_the_same(
    served: Served, busy: Busy, database: sqlite3.Connection, end: signal.Signals
) -> None:
    waiting = busy.here[0]
    _, other = here_and_there(served, waiting)
    # It takes nothing any more, and does not say so.
    other.suspend()
    waiting.send(GET)
    eventually(lambda: not owners(served, waiting))
    other.send_signal(end)
    other.resume()
    database.rollback()
    assert waiting.answer() == 200


def test_workers_that_lost_their_parent_hand_nothing_to_those_that_have_ended(
    served: Served, busy: Busy, database: sqlite3.Connection
) -> None:
    here, there = here_and_there(served, busy.here[0])
    for connection in busy.there:
        connection.close()
    here.suspend()
    served.process.kill()
    there.wait(timeout=20)
    for connection in busy.here:
        connection.send(GET)
    here.resume()
    database.rollback()
    assert {connection.answer() for connection in busy.here} == {200}


FEW_FILES = """
import resource
from placement_server.cmd import serve

_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
serve.main()
"""


def test_connections_that_say_nothing_do_not_use_up_the_files_that_may_be_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start(FEW_FILES, tmp_path, monkeypatch, "--workers", "1")
    with contextlib.ExitStack() as stack:
        for _ in range(300):
            stack.enter_context(socket.create_connection(server.address))
        with contextlib.closing(Kept(server)) as kept:
            assert kept.ask(GET) == 200
    assert server.stop() == 0
    assert "Traceback" not in server.output


QUIT_WHEN_A_CONNECTION_COMES = """
import os, signal, threading
from placement_server.cmd import serve

start = threading.Thread.start

def quit_and_start(thread):
    if thread.name.startswith("ThreadPoolExecutor"):
        os.kill(os.getpid(), signal.SIGQUIT)
    start(thread)

threading.Thread.start = quit_and_start
serve.main()
"""


def test_a_worker_that_is_told_to_quit_while_a_connection_goes_to_a_thread_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start(QUIT_WHEN_A_CONNECTION_COMES, tmp_path, monkeypatch, "--workers", "1")
    (worker,) = workers(server)
    with socket.create_connection(server.address):
        worker.wait(timeout=20)
    assert server.stop() == 0


@pytest.fixture
def slow(served: Served, busy: Busy) -> Iterator[list[socket.socket]]:
    """As many connections as the other worker can still take, and more."""
    here, there = here_and_there(served, busy.here[0])
    with contextlib.ExitStack() as stack:
        here.suspend()
        stack.callback(here.resume)
        opened = [
            stack.enter_context(socket.create_connection(served.address)) for _ in range(LIMIT)
        ]
        for connection in opened:
            connection.sendall(GET[:20])
        eventually(lambda: len(ports(there)) == LIMIT)
        here.resume()
        yield opened


@pytest.mark.usefixtures("slow")
def test_nothing_goes_to_a_worker_with_all_the_connections_it_can_hold(
    busy: Busy, database: sqlite3.Connection
) -> None:
    for connection in busy.here:
        connection.send(GET)
    database.rollback()
    assert {connection.answer() for connection in busy.here} == {200}


def test_a_worker_that_could_hold_no_more_takes_connections_when_others_are_gone(
    slow: list[socket.socket], busy: Busy, database: sqlite3.Connection
) -> None:
    # It is idle, however many it has.
    assert all(connection.ask(GET) == 200 for connection in busy.there)
    for connection in slow:
        connection.close()
    stay, asked = list(busy.here), []

    def one_goes() -> bool:
        asked.append(stay.pop())
        asked[-1].send(GET)
        return asked[-1].has_answer(within=1)

    eventually(one_goes)
    database.rollback()
    assert {connection.answer() for connection in asked} == {200}
