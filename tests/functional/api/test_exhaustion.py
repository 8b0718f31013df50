"""Workers that run out of what the system gives: room for files, descriptors, memory."""

from __future__ import annotations

import contextlib
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.functional.agent.processes import eventually

from .served import ServerProcess

pytestmark = pytest.mark.waiting

HEAD = b"Host: x\r\nX-Auth-Token: admin\r\nOpenStack-API-Version: placement 1.39\r\n"
CLOSE = HEAD + b"Connection: close\r\nContent-Type: application/json\r\n"
GET = b"GET /resource_providers HTTP/1.1\r\n" + CLOSE + b"\r\n"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path_factory.mktemp("served"), "--workers", "1")
    yield server
    assert server.stop() == 0
    assert "Traceback" not in server.output


@contextlib.contextmanager
def limited(served: ServerProcess, what: int, most: int) -> Iterator[None]:
    """Limit the worker."""
    (worker,) = psutil.Process(served.process.pid).children()
    before = worker.rlimit(what)
    worker.rlimit(what, (most, before[1]))
    yield
    worker.rlimit(what, before)


def test_a_worker_that_could_not_accept_a_connection_accepts_it_later(
    served: ServerProcess,
) -> None:
    (worker,) = psutil.Process(served.process.pid).children()
    numbers = [int(path.name) for path in Path(f"/proc/{worker.pid}/fd").iterdir()]
    with (
        limited(served, resource.RLIMIT_NOFILE, max(numbers) + 1),
        socket.create_connection(served.address, timeout=30) as connection,
    ):
        connection.sendall(GET)
        eventually(lambda: "Too many open files" in served.output, "a line that says so")
    assert served.exchange(GET).startswith(b"HTTP/1.1 200")


FAILS_TO_LOAD = """
import os, pathlib, sys
from placement_server.cmd import serve, serving

exhausted, load = pathlib.Path(sys.argv[-1]).with_name("exhausted"), serving._application

def application(*arguments):
    if exhausted.exists():
        raise OSError(24, "Too many open files")
    loaded = load(*arguments)
    print(f"loaded by {os.getpid()}.", flush=True)
    return loaded

serving._application = application
serve.main()
"""


def test_a_worker_that_cannot_start_in_the_place_of_another_leaves_the_others(
    tmp_path: Path,
) -> None:
    server = ServerProcess(tmp_path, "--workers", "2", program=FAILS_TO_LOAD)
    exhausted = tmp_path / "exhausted"
    parent = psutil.Process(server.process.pid)

    def first_workers() -> list[psutil.Process]:
        workers = parent.children()
        # one of the first that cannot start ends the server
        loaded = [worker for worker in workers if f"loaded by {worker.pid}." in server.output]
        return loaded if len(loaded) == 2 else []

    killed = eventually(first_workers, "two workers that have loaded")[0]
    exhausted.touch()
    killed.kill()
    eventually(lambda: server.output.count("cannot start") > 1, "a second try")
    assert server.exchange(GET).startswith(b"HTTP/1.1 200")
    exhausted.unlink()
    eventually(lambda: server.output.count("loaded by") == 3, "a worker in its place")
    assert server.exchange(GET).startswith(b"HTTP/1.1 200")
    assert server.stop() == 0
