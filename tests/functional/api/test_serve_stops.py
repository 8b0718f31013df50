"""The end of placement-server: nobody is kept waiting, nothing is left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.functional.agent.processes import eventually

from .served import ServerProcess

GET = b"GET /traits HTTP/1.1\r\nHost: x\r\nX-Auth-Token: admin\r\n\r\n"

SOON = 20.0
"""Seconds in which an idle server ends. It takes a fifth of one; other tests may run. One that
waits for clients or threads takes 30 or more."""
PATIENCE = 60.0
"""Seconds for what would otherwise never happen."""


PROGRAM = """
import socket, sys
from pathlib import Path
from placement_server.http_server.server import HttpServer

def answer(environ, start_response):
    start_response("200 OK", [])
    return [b"yes"]

listener = socket.socket()
listener.bind(("127.0.0.1", 0))
when_ready = lambda: print("ready", flush=True)
HttpServer(listener, lambda: answer, 1, 60, when_ready=when_ready).run(Path(sys.argv[1]))
"""


def connect(server: ServerProcess) -> socket.socket:
    return socket.create_connection(server.address, timeout=30)


def kept(server: ServerProcess) -> socket.socket:
    connection = connect(server)
    connection.sendall(GET)
    answer = b""
    while not answer.endswith(b"}]}"):
        answer += connection.recv(65536)
    return connection


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("client", [None, kept, connect])
def test_an_idle_server_ends_at_once_whoever_is_connected(
    tmp_path: Path, end: signal.Signals, client: Callable[[ServerProcess], socket.socket] | None
) -> None:
    server = ServerProcess(tmp_path, "--workers", "2")
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(client(server)) for _ in range(6) if client]
        workers = psutil.Process(server.process.pid).children()
        begun = time.monotonic()
        server.process.send_signal(end)
        _, left = psutil.wait_procs([*workers, psutil.Process(server.process.pid)], SOON)
        assert not left, time.monotonic() - begun
        # Not one of them waits for an answer that does not come.
        assert [_rest(connection) for connection in connections] == [b""] * len(connections)
    assert server.stop() == 0
    assert "Traceback" not in server.output


def test_a_program_goes_on_after_it_has_served_and_ends(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        try:
            assert process.wait(SOON) == 0
        finally:
            process.kill()


def _rest(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65536)
    except ConnectionResetError:
        return b""


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_a_request_in_progress_is_answered_and_new_clients_are_refused(
    tmp_path: Path, end: signal.Signals
) -> None:
    server = ServerProcess(tmp_path, "--workers", "2")
    with kept(server), connect(server) as half:
        half.sendall(GET[:30])
        eventually(lambda: server.has_read(half), "a begun request")
        # The rest comes when the server takes no new client any more.
        server.process.send_signal(end)
        deadline = time.monotonic() + 20
        while _is_taken(server):
            assert time.monotonic() < deadline
        half.sendall(GET[30:])
        answer = half.recv(65536)
        assert answer.startswith(b"HTTP/1.1 ")
        assert b"connection: close" in answer.lower()
    assert server.stop() == 0


def test_a_head_half_sent_on_a_kept_connection_is_dropped_at_the_stop(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, "--workers", "1")
    with kept(server) as half:
        half.sendall(GET[:30])
        eventually(lambda: server.has_read(half), "a begun request")
        server.process.send_signal(signal.SIGTERM)
        assert _rest(half) == b""
    assert server.stop() == 0


def _is_taken(server: ServerProcess) -> bool:
    try:
        connect(server).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("round_number", range(3))
def test_a_server_that_is_stopped_while_its_workers_start_does_not_wait_for_them(
    tmp_path: Path, round_number: int
) -> None:
    del round_number
    # The first one tells that it is ready; most of the others are not.
    server = ServerProcess(tmp_path, "--workers", "6")
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(timeout=SOON) == 0
    assert server.stop() == 0


@pytest.mark.parametrize("round_number", range(4))
def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path, round_number: int) -> None:
    server = ServerProcess(tmp_path, "--workers", "3")
    # One of them has a client that keeps it busy.
    with kept(server), connect(server) as half:
        half.sendall(GET[:30])
        parent = psutil.Process(server.process.pid)
        # The server is ready with its first worker.
        deadline = time.monotonic() + 30
        while len(parent.children()) < 3:
            assert time.monotonic() < deadline
        first, *others = parent.children()
        if round_number % 2:
            # One that does not run cannot look after itself either.
            others[0].suspend()
        first.kill()
        psutil.wait_procs([first], PATIENCE)
        workers = [*parent.children(), *others]
        server.process.kill()
        server.process.wait(timeout=PATIENCE)
        deadline = time.monotonic() + PATIENCE
        # A worker that was just made in the place of the first one is not among those known here.
        while any(_lives(worker) for worker in workers) or not _is_free(server.address):
            assert time.monotonic() < deadline


def _is_free(address: tuple[str, int]) -> bool:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen()
        except OSError:
            return False
    return True


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_a_second_interrupt_does_not_wait_for_requests_in_progress(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, "--workers", "1")
    server.ask("GET", "/traits")
    with connect(server) as half:
        half.sendall(GET[:30])
        eventually(lambda: server.has_read(half), "a begun request")
        server.process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + 20
        while _is_taken(server):
            assert time.monotonic() < deadline
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(timeout=SOON) == 0
        assert _rest(half) == b""
    assert server.stop() == 0


ENDED_WHILE_LOADING = """
import importlib, os, signal
from placement_server.cmd import serve

import_module = importlib.import_module

def end(name, *package):
    if name == "placement_server.app":
        os.kill(os.getpid(), signal.SIGTERM)
    return import_module(name, *package)

importlib.import_module = end
serve.main()
"""


def test_a_server_that_is_ended_while_it_loads_leaves_no_directory(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path}/placement.db"
    (tmp_path / "placement.conf").write_text(
        f"[placement_database]\nconnection = {database}\nsync_on_startup = true\n"
        "[api]\nauth_strategy = noauth2\n[placement_server]\nmetrics_path = /metrics\n"
    )
    arguments = ["serve", "--port", "0", "--config-file", str(tmp_path / "placement.conf")]
    ended = subprocess.run(
        [sys.executable, "-c", ENDED_WHILE_LOADING, *arguments],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (ended.returncode, "Traceback" in ended.stderr) == (0, False)
    assert not [path for path in tmp_path.glob("placement-*") if path.is_dir()]


RELOADED_WHILE_STARTING = """
import os, signal
from placement_server.cmd import serve
from placement_server.store.store import Store

from_conf = Store.from_conf

def reload(conf):
    os.kill(os.getpid(), signal.SIGHUP)
    return from_conf(conf)

Store.from_conf = reload
serve.main()
"""


def test_sighup_does_not_end_a_server_that_still_starts(tmp_path: Path) -> None:
    # which may wait for its database for hours
    with ServerProcess(tmp_path, "--workers", "1", program=RELOADED_WHILE_STARTING) as server:
        assert server.ask("GET", "/").status_code == 200
