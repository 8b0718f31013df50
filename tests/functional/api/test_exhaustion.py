"""Workers that run out of what the system gives: room for files, descriptors, memory."""

from __future__ import annotations

import contextlib
import json
import re
import resource
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.functional.agent.processes import eventually

from .served import Served

pytestmark = pytest.mark.waiting

HEAD = b"Host: x\r\nX-Auth-Token: admin\r\nOpenStack-API-Version: placement 1.39\r\n"
CLOSE = HEAD + b"Connection: close\r\nContent-Type: application/json\r\n"
GET = b"GET /resource_providers HTTP/1.1\r\n" + CLOSE + b"\r\n"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    server = Served(tmp_path_factory.mktemp("served"), "--workers", "1")
    yield server
    assert server.stop() == 0
    assert "Traceback" not in server.output


@contextlib.contextmanager
def limited(served: Served, what: int, most: int) -> Iterator[None]:
    """Limit the worker."""
    (worker,) = psutil.Process(served.process.pid).children()
    before = worker.rlimit(what)
    worker.rlimit(what, (most, before[1]))
    yield
    worker.rlimit(what, before)


def post(served: Served, length: int) -> tuple[int, dict[str, object]]:
    """Send a body that names nothing, of so many bytes; return status and error."""
    body = b'{"name": "' + b"x" * length + b'"}'
    head = b"POST /resource_providers HTTP/1.1\r\n%sContent-Length: %d\r\n\r\n"
    answer = served.exchange(head % (CLOSE, len(body)) + body)
    (error,) = json.loads(answer.partition(b"\r\n\r\n")[2])["errors"]
    return int(answer.split()[1]), error


# the smaller one lacks less room than a buffer has
@pytest.mark.parametrize("length", [301_000, 1_000_000])
def test_a_body_without_room_on_the_disk_is_refused_and_others_are_not(
    served: Served, length: int
) -> None:
    with limited(served, resource.RLIMIT_FSIZE, 300_000):
        status, error = post(served, length)
        assert status == 503
        assert "no room for the body" in str(error["detail"])
        assert served.exchange(GET).startswith(b"HTTP/1.1 200")
    assert "TMPDIR" in served.output
    assert post(served, length)[0] == 400


def test_a_body_that_no_file_can_be_opened_for_is_refused(served: Served) -> None:
    (worker,) = psutil.Process(served.process.pid).children()
    numbers = [int(path.name) for path in Path(f"/proc/{worker.pid}/fd").iterdir()]
    # one for the connection
    with limited(served, resource.RLIMIT_NOFILE, max(numbers) + 2):
        assert post(served, 1_000_000)[0] == 503
    assert post(served, 1_000_000)[0] == 400


def test_a_worker_that_could_not_accept_a_connection_accepts_it_later(served: Served) -> None:
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
from placement_server.cmd import serve

exhausted, load = pathlib.Path(sys.argv[-1]).with_name("exhausted"), serve._application

def application(*arguments):
    if exhausted.exists():
        raise OSError(24, "Too many open files")
    loaded = load(*arguments)
    print(f"loaded by {os.getpid()}.", flush=True)
    return loaded

serve._application = application
serve.main()
"""


def test_a_worker_that_cannot_start_in_the_place_of_another_leaves_the_others(
    tmp_path: Path,
) -> None:
    server = Served(tmp_path, "--workers", "2", program=FAILS_TO_LOAD)
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
    tried = server.output.count("Booting worker")
    eventually(lambda: server.output.count("Booting worker") > tried, "another try")
    assert server.exchange(GET).startswith(b"HTTP/1.1 200")
    assert server.stop() == 0


NO_THREADS = """
import pathlib, sys, threading
from placement_server.cmd import serve

exhausted = pathlib.Path(sys.argv[-1]).with_name("exhausted")
start = threading.Thread.start

def start_or_not(thread):
    if exhausted.exists():
        raise RuntimeError("can't start new thread")
    start(thread)

threading.Thread.start = start_or_not
serve.main()
"""


def test_a_client_for_whom_no_thread_can_be_started_is_served_by_another(tmp_path: Path) -> None:
    server = Served(tmp_path, "--workers", "1", program=NO_THREADS)
    exhausted = tmp_path / "exhausted"
    with contextlib.ExitStack() as stack:
        # one thread waits for its client
        kept = stack.enter_context(socket.create_connection(server.address, timeout=30))
        kept.sendall(GET.replace(b"Connection: close\r\n", b""))
        assert kept.recv(65536).startswith(b"HTTP/1.1 200")
        exhausted.touch()
        waits = stack.enter_context(socket.create_connection(server.address, timeout=30))
        waits.sendall(GET)
        eventually(lambda: "Clients have to wait" in server.output, "a line that says so")
        kept.close()
        assert waits.recv(65536).startswith(b"HTTP/1.1 200")
    exhausted.unlink()
    assert server.exchange(GET).startswith(b"HTTP/1.1 200")
    assert server.output.count("Booting worker") == 1
    assert server.stop() == 0


def test_a_client_waits_for_the_first_thread_that_can_be_started(tmp_path: Path) -> None:
    server = Served(tmp_path, "--workers", "1", program=NO_THREADS)
    exhausted = tmp_path / "exhausted"
    exhausted.touch()
    with socket.create_connection(server.address, timeout=30) as waits:
        waits.sendall(GET)
        eventually(lambda: "Clients have to wait" in server.output, "a line that says so")
        exhausted.unlink()
        assert waits.recv(65536).startswith(b"HTTP/1.1 200")
    assert server.stop() == 0


def test_the_last_clients_are_served_by_threads_that_there_are(tmp_path: Path) -> None:
    server = Served(tmp_path, "--workers", "1", program=NO_THREADS)
    (worker,) = psutil.Process(server.process.pid).children()
    with contextlib.ExitStack() as stack:
        kept = stack.enter_context(socket.create_connection(server.address, timeout=30))
        kept.sendall(GET.replace(b"Connection: close\r\n", b""))
        assert kept.recv(65536).startswith(b"HTTP/1.1 200")
        (tmp_path / "exhausted").touch()
        worker.suspend()
        # or the later signal, whose number is lower, would be delivered first
        eventually(lambda: worker.status() == psutil.STATUS_STOPPED, "a worker that stands still")
        last = [
            stack.enter_context(socket.create_connection(server.address, timeout=30))
            for _ in range(3)
        ]
        for client in last:
            client.sendall(GET)
        server.process.send_signal(signal.SIGTERM)
        eventually(lambda: _is_told(worker.pid, signal.SIGTERM), "a worker that is to end")
        worker.resume()
        assert [client.recv(65536)[:12] for client in last] == [b"HTTP/1.1 200"] * 3
    assert server.stop() == 0
    assert "Traceback" not in server.output


def _is_told(pid: int, number: signal.Signals) -> bool:
    """Whether a signal waits for a process."""
    pending = re.findall(r"Pnd:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
    return any(int(mask, 16) >> (number - 1) & 1 for mask in pending)
