"""Clients that keep their connections, many at once and idle ones."""

from __future__ import annotations

import contextlib
import resource
import socket
import threading
from pathlib import Path

from .served import ServerProcess

GET = b"GET /resource_providers HTTP/1.1\r\nHost: x\r\nX-Auth-Token: admin\r\n\r\n"
UNKNOWN = GET.replace(b"resource_providers", b"nothing")


class KeptConnection:
    """A connection that has had an answer already."""

    def __init__(self, server: ServerProcess) -> None:
        self._socket = socket.create_connection(server.address, timeout=20)
        self._received = self._socket.makefile("rb")
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
        assert len(self._received.read(length)) == length
        return status

    def ask(self, request: bytes) -> int:
        self.send(request)
        return self.answer()

    def close(self) -> None:
        self._received.close()
        self._socket.close()


def test_requests_that_came_together_are_answered_in_order(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, "--workers", "1")
    with contextlib.closing(KeptConnection(server)) as kept:
        kept.send(GET + UNKNOWN + GET)
        assert [kept.answer() for _ in range(3)] == [200, 404, 200]
    assert server.stop() == 0


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
    server = ServerProcess(tmp_path, "--workers", "1", program=FEW_FILES)
    with contextlib.ExitStack() as stack:
        for _ in range(300):
            stack.enter_context(socket.create_connection(server.address))
        with contextlib.closing(KeptConnection(server)) as kept:
            assert kept.ask(GET) == 200
    assert server.stop() == 0
    assert "Traceback" not in server.output


def test_more_idle_connections_than_threads_keep_nobody_waiting(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    server = ServerProcess(tmp_path, "--workers", "1")
    try:
        with contextlib.ExitStack() as stack:
            for _ in range(1100):
                stack.enter_context(socket.create_connection(server.address))
            with contextlib.closing(KeptConnection(server)) as kept:
                assert kept.ask(GET) == 200
        assert server.stop() == 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_many_kept_connections_are_answered_at_once(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, "--workers", "1", "--threads", "2")
    with contextlib.ExitStack() as stack:
        kept = [stack.enter_context(contextlib.closing(KeptConnection(server))) for _ in range(50)]
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
