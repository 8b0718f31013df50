"""Clients that keep their connections, and workers with all the connections they may hold."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path

import psutil

from .served import Served

GET = b"GET /resource_providers HTTP/1.1\r\nHost: x\r\nX-Auth-Token: admin\r\n\r\n"
UNKNOWN = GET.replace(b"resource_providers", b"nothing")


class Kept:
    """A connection that has had an answer already."""

    def __init__(self, server: Served) -> None:
        self._socket = socket.create_connection(server.address, timeout=20)
        self._received = self._socket.makefile("rb")
        self.closes = False
        assert self.ask(GET) == 200

    def send(self, request: bytes) -> None:
        self._socket.sendall(request)

    def answer(self) -> int:
        """The status of an answer, which is read whole."""
        status = int(self._received.readline().split()[1])
        length = 0
        while line := self._received.readline().strip():
            name, _, value = line.lower().partition(b":")
            if name == b"content-length":
                length = int(value)
            if name == b"connection":
                self.closes = value.strip() == b"close"
        assert len(self._received.read(length)) == length
        return status

    def ask(self, request: bytes) -> int:
        self.send(request)
        return self.answer()

    def close(self) -> None:
        self._received.close()
        self._socket.close()


def test_requests_that_came_together_are_answered_in_order(tmp_path: Path) -> None:
    server = Served(tmp_path, "--workers", "1")
    with contextlib.closing(Kept(server)) as kept:
        kept.send(GET + UNKNOWN + GET)
        assert [kept.answer() for _ in range(3)] == [200, 404, 200]
    assert server.stop() == 0


FEW_CONNECTIONS = """
from placement_server.cmd import serve
from placement_server.http_server import server

server._CONNECTIONS = 6
serve.main()
"""


def test_a_worker_that_is_nearly_full_keeps_no_connection_after_its_answer(tmp_path: Path) -> None:
    server = Served(tmp_path, "--workers", "1", "--threads", "2", program=FEW_CONNECTIONS)
    with contextlib.ExitStack() as stack:
        # Of six places two are for those who come while four keep theirs.
        kept = [stack.enter_context(contextlib.closing(Kept(server))) for _ in range(4)]
        assert [connection.closes for connection in kept] == [False] * 4
        for _ in range(10):
            with contextlib.closing(Kept(server)) as passing:
                assert passing.closes
        assert [connection.ask(GET) for connection in kept] == [200] * 4
    assert server.stop() == 0
    assert "Traceback" not in server.output


FEW_FILES = """
import resource
from placement_server.cmd import serve

_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
serve.main()
"""


def test_connections_that_send_nothing_do_not_use_up_the_files_that_may_be_open(
    tmp_path: Path,
) -> None:
    server = Served(tmp_path, "--workers", "1", program=FEW_FILES)
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
    tmp_path: Path,
) -> None:
    server = Served(tmp_path, "--workers", "1", program=QUIT_WHEN_A_CONNECTION_COMES)
    (worker,) = psutil.Process(server.process.pid).children()
    with socket.create_connection(server.address):
        worker.wait(timeout=20)
    assert server.stop() == 0


def test_many_kept_connections_are_answered_at_once(tmp_path: Path) -> None:
    server = Served(tmp_path, "--workers", "1", "--threads", "2")
    with contextlib.ExitStack() as stack:
        kept = [stack.enter_context(contextlib.closing(Kept(server))) for _ in range(50)]
        statuses: list[int] = []
        threads = [
            threading.Thread(target=lambda kept=connection: statuses.append(kept.ask(GET)))
            for connection in kept
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert statuses == [200] * 50
    assert server.stop() == 0
