"""Tokens that are remembered in memcached, which hangs, is away or has nonsense."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from placement_server.conf import InvalidConfiguration, new_config
from placement_server.middleware.token_memory import TokenMemory, check_memcached
from tests.fixtures.ports import free_port

SAID: dict[str, Any] = {
    "token": {
        "methods": ["password"],
        "expires_at": "2999-01-01T00:00:00.000000Z",
        "issued_at": "2026-01-01T00:00:00.000000Z",
        "user": {"id": "u", "name": "nova", "domain": {"id": "default", "name": "Default"}},
        "roles": [{"id": "r", "name": "service"}],
    }
}


class BrokenCache:
    """A cache of the middleware whose library fails, or that has what nobody wrote there."""

    def __init__(self, content: Any = None, error: Exception | None = None) -> None:
        self._content = content
        self._error = error

    def initialize(self, _environ: object) -> None:
        """Do nothing."""

    def get(self, _token: str) -> Any:
        if self._error:
            raise self._error
        return self._content

    def set(self, _token: str, _data: object) -> None:
        if self._error:
            raise self._error


@pytest.mark.parametrize(
    "content",
    [[], 17, "x", {}, {"token": 1}, {"token": {}}, {**SAID, "two": 1}, [SAID, 1]],
    ids=str,
)
def test_what_is_no_token_is_a_token_that_is_not_known(content: Any) -> None:
    assert TokenMemory(BrokenCache(content), is_shared=True).get("t") is None


def test_a_library_that_fails_is_logged_once_until_it_works_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cache = BrokenCache(error=ValueError("no bytes"))
    memory = TokenMemory(cache, is_shared=True)
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            assert memory.get("t") is None
            memory.set("t", SAID)
        cache.__init__(SAID)  # type: ignore[misc]
        assert memory.get("t") == SAID
    first, last = (record.getMessage() for record in caplog.records)
    assert "memcached_servers): what it has of a token cannot be read (ValueError: no" in first
    assert "is used again" in last


class MemcachedServer:
    """A real memcached on loopback."""

    def __init__(self) -> None:
        self.port = free_port()
        self.process = subprocess.Popen(
            ["memcached", "-u", "nobody", "-l", "127.0.0.1", "-p", str(self.port), "-m", "8"]
        )
        while True:
            try:
                self.connect().close()
            except ConnectionRefusedError:
                assert self.process.poll() is None
                time.sleep(0.01)
            else:
                return

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), 30)

    def write(self, token: str, value: bytes) -> None:
        """Write what is remembered of a token."""
        key = f"tokens/{hashlib.sha256(token.encode()).hexdigest()}"
        with self.connect() as connection:
            connection.sendall(f"set {key} 0 0 {len(value)}\r\n".encode() + value + b"\r\n")
            assert connection.recv(100) == b"STORED\r\n"

    def memory(self) -> TokenMemory:
        """Make the memory of a worker, which waits for a second."""
        pytest.importorskip("memcache", reason="python-memcached is not installed")
        from keystonemiddleware.auth_token._cache import TokenCache

        cache = TokenCache(
            logging.getLogger(__name__),
            cache_time=300,
            memcached_servers=[f"127.0.0.1:{self.port}"],
            dead_retry=300,
            socket_timeout=1,
            maxsize=10,
            unused_timeout=60,
            conn_get_timeout=10,
        )
        return TokenMemory(cache, is_shared=True)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def memcached() -> Iterator[MemcachedServer]:
    if shutil.which("memcached") is None:
        pytest.skip("memcached is not installed (Debian package: memcached)")
    memcached = MemcachedServer()
    yield memcached
    memcached.end()


def test_workers_share_what_they_remember(memcached: MemcachedServer) -> None:
    memcached.memory().set("t", SAID)
    other = memcached.memory()
    assert other.get("t") == SAID
    assert other.get("another") is None
    memcached.write("t", b"\xff nonsense")
    assert other.get("t") is None
    memcached.write("t", json.dumps(SAID).encode())
    assert other.get("t") == SAID


def test_a_memcached_that_hangs_is_waited_for_once(
    memcached: MemcachedServer, caplog: pytest.LogCaptureFixture
) -> None:
    memory = memcached.memory()
    memory.set("t", SAID)
    os.kill(memcached.process.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, memcached.process.pid, os.WSTOPPED)
    begin = time.monotonic()
    for _ in range(100):
        assert memory.get("t") is None
        memory.set("t", SAID)
    # each wait is a second
    assert time.monotonic() - begin < 50
    (record,) = caplog.records
    assert f"it does not answer, and is not asked again: 127.0.0.1:{memcached.port} for" in (
        record.getMessage()
    )


def test_a_memcached_that_is_away_costs_nothing_but_the_memory(memcached: MemcachedServer) -> None:
    memory = memcached.memory()
    memcached.end()
    memory.set("t", SAID)
    assert memory.get("t") is None


def test_an_address_that_cannot_be_read_ends_the_start() -> None:
    pytest.importorskip("memcache", reason="python-memcached is not installed")
    conf = new_config(config_files=[])
    conf.set_override("memcached_servers", ["::1"], "keystone_authtoken")
    with pytest.raises(InvalidConfiguration, match=r'memcached_servers cannot be read.*"::1"'):
        check_memcached(conf.keystone_authtoken)
