"""The quiet passes of 100,000 hosts, a pass a minute each, asked of one server.

Each pass is one conditional read of a tree, answered by 304, on one of the connections that a proxy
keeps: more agents than the server has connections do without a proxy at the price of a new
connection for most passes. The trees are fewer, and each is asked for oftener: 5,000 of them every
3 s. The requests are sent when they are due, however long the answers take, by one process that
does nothing else: whole agents would take more cores than a small machine has.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import statistics
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from benchmarks.agent.simulated_agents import PERIOD
from benchmarks.parts.client import HEADERS
from benchmarks.parts.servers import Server
from benchmarks.server.trees import VERSION, Meter

HOSTS = 100_000
MOST_CORES = 1.0
CONNECTIONS = 64
_ROUNDS = 8
"""How often each tree is asked for before: every worker reads it once, at its first request for
it."""
_PATIENCE = 60.0
"""Seconds in which the last answers come."""


@dataclass(frozen=True)
class LargeFleetCost:
    """What a server spent on quiet passes.

    :ivar late: seconds from when a pass was due until it was answered.
    """

    seconds: float
    passes: int
    cpu: float
    late: Sequence[float]

    @property
    def rate(self) -> float:
        """Passes in a second."""
        return self.passes / self.seconds

    @property
    def pass_ms(self) -> float:
        return 1000 * self.cpu / self.passes

    @property
    def cores(self) -> float:
        """What all hosts need, also where the machine was too busy for their rate."""
        return HOSTS / PERIOD * self.cpu / self.passes

    @property
    def holds(self) -> bool:
        return self.cores <= MOST_CORES

    def note(self) -> str:
        """Say what was asked and what it cost."""
        return (
            f"{self.passes} passes, {self.rate:.0f}/s of {HOSTS / PERIOD:.0f}; answered "
            f"{1000 * statistics.median(self.late):.1f} ms after they were due (p50); "
            f"{self.pass_ms:.2f} ms of server CPU a pass = {self.cores:.2f} cores for {HOSTS:,} "
            f"hosts, at most {MOST_CORES:g}"
        )


class _Connection:
    """A kept connection, on which one request at a time waits for its answer."""

    def __init__(self, address: tuple[str, int], selector: selectors.BaseSelector) -> None:
        self.due_at = 0.0
        self._address = address
        self._selector = selector
        self._received_bytes = b""
        self._open()

    def _open(self) -> None:
        self._socket = socket.create_connection(self._address)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector.register(self._socket, selectors.EVENT_READ, self)

    def close(self) -> None:
        self._selector.unregister(self._socket)
        self._socket.close()

    def ask(self, request: bytes, due_at: float) -> None:
        self.due_at = due_at
        self._socket.sendall(request)

    def receive(self) -> bool:
        """Take what has come; whether that completes the answer.

        A server that still has the connections of the agents says that it closes this connection,
        which is opened again then, as a proxy does.

        :raises RuntimeError: it is another answer than 304, or the server closed the connection.
        """
        piece = self._socket.recv(4096)
        self._received_bytes += piece
        if piece and b"\r\n\r\n" not in self._received_bytes:
            return False
        if not self._received_bytes.startswith(b"HTTP/1.1 304 "):
            raise RuntimeError(f"a quiet pass was answered with {self._received_bytes[:200]!r}")
        if b"\r\nconnection: close\r\n" in self._received_bytes.lower():
            self.close()
            self._open()
        self._received_bytes = b""
        return True


def measure(server: Server, roots: Sequence[str], seconds: float) -> LargeFleetCost:
    """Ask whether these trees have changed, one after the other, as often as all hosts would.

    :param roots: the roots of the trees.
    """
    parts = urlsplit(server.url)
    assert parts.hostname is not None
    assert parts.port is not None
    address = (parts.hostname, parts.port)
    requests = _requests(server, parts.netloc, roots)
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as stack:
        connections = [
            stack.enter_context(contextlib.closing(_Connection(address, selector)))
            for _ in range(CONNECTIONS)
        ]
        _ask(selector, connections, requests, _ROUNDS * len(requests))
        began, cpu = time.monotonic(), server.cpu_seconds()
        late = _ask(selector, connections, requests, round(seconds * HOSTS / PERIOD))
        return LargeFleetCost(time.monotonic() - began, len(late), server.cpu_seconds() - cpu, late)


def _requests(server: Server, host: str, roots: Sequence[str]) -> list[bytes]:
    """The conditional read of each tree as it is now."""
    meter = Meter(server)
    requests = []
    for root in roots:
        path = f"/provider_trees/{root}"
        tag, _ = meter.send("GET", path)
        headers = {
            "Host": host,
            **HEADERS,
            "OpenStack-API-Version": VERSION,
            "If-None-Match": tag,
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        requests.append(f"GET {path} HTTP/1.1\r\n{lines}\r\n".encode())
    return requests


def _ask(
    selector: selectors.BaseSelector,
    connections: Sequence[_Connection],
    requests: Sequence[bytes],
    passes: int,
) -> list[float]:
    """Send so many requests when they are due; how late each was answered.

    :raises RuntimeError: an answer is another than 304, or does not come.
    """
    began = time.monotonic()
    free = deque(connections)
    late: list[float] = []
    asked_count = 0
    while len(late) < passes:
        while (
            asked_count < passes
            and free
            and began + asked_count * PERIOD / HOSTS <= time.monotonic()
        ):
            free.popleft().ask(
                requests[asked_count % len(requests)], began + asked_count * PERIOD / HOSTS
            )
            asked_count += 1
        next_due = began + asked_count * PERIOD / HOSTS - time.monotonic()
        answered_keys = selector.select(
            max(0.0, next_due) if asked_count < passes and free else _PATIENCE
        )
        if not answered_keys and len(free) < len(connections) and next_due < -_PATIENCE:
            raise RuntimeError(
                f"{asked_count - len(late)} passes had no answer in {_PATIENCE:.0f} s"
            )
        for key, _ in answered_keys:
            connection = key.data
            if connection.receive():
                late.append(time.monotonic() - connection.due_at)
                free.append(connection)
    return late
