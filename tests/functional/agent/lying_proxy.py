"""A proxy before placement that notes what is asked, and answers some of it as it is told to."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any

import requests

from tests.fixtures.stub_server import StubHandler, StubServer
from tests.functional.agent.processes import PATIENCE
from tests.functional.lies.menu import Conversation, Lie


@dataclass
class Rule:
    """What the proxy answers instead of placement."""

    method: str
    path: str
    status: int | None
    """None: the connection is closed without an answer."""
    body: bytes
    times: int
    after: bool
    headers: dict[str, str]
    held: threading.Event | None = None
    go_on: threading.Event | None = None
    """Set by a test to let the answer through after all."""
    lie: Lie | None = None
    """Writes to the connection in place of an answer."""


class LyingProxy:
    """Stands before placement, passes everything on, and lies where a test asks for it."""

    def __init__(self, upstream: str) -> None:
        self.requests: list[str] = []
        self._upstream = upstream
        self._rules: list[Rule] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        proxy = self

        class Handler(StubHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                proxy.serve(self, self.rfile.read(length) if length else b"")

            do_GET = do_PUT = do_POST = do_DELETE = _serve

        self._server = StubServer(Handler)

    @property
    def url(self) -> str:
        return self._server.url

    def answer(
        self,
        method: str,
        path: str,
        status: int | None,
        body: Any = b"",
        *,
        times: int = 10**6,
        after: bool = False,
        headers: dict[str, str] | None = None,
    ) -> None:
        """Answer requests whose method and path match (regular expressions).

        :param after: placement gets the request first; only its answer is lost.
        """
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        with self._lock:
            self._rules.insert(0, Rule(method, path, status, raw, times, after, headers or {}))

    def hold(self, method: str, path: str) -> threading.Event:
        """Pass one request on, and never answer it; the event is set when placement has."""
        held = threading.Event()
        with self._lock:
            self._rules.insert(0, Rule(method, path, None, b"", 1, True, {}, held))
        return held

    def pause(self, method: str, path: str) -> tuple[threading.Event, threading.Event]:
        """Pass one request on, and its answer back only when the second event is set.

        The first is set when placement has the request.
        """
        held, go_on = threading.Event(), threading.Event()
        with self._lock:
            self._rules.insert(0, Rule(method, path, None, b"", 1, True, {}, held, go_on))
        return held, go_on

    def lie(self, lie: Lie, elsewhere: str, method: str = ".*", path: str = ".*") -> None:
        """Answer requests by a lie of the menu, until it is honest again.

        :param elsewhere: URL of the server to which a lie sends the client.
        """
        with self._lock:
            rule = Rule(method, path, None, b"", 10**6, False, {"elsewhere": elsewhere}, lie=lie)
            self._rules.insert(0, rule)

    def error(self, method: str, path: str, status: int, code: str = "", **kwargs: Any) -> None:
        """Answer with an error as placement words it."""
        detail = f"{status} was scripted"
        entry = {"status": status, "title": "Scripted", "detail": detail, "request_id": "req-x"}
        if code:
            entry["code"] = code
        self.answer(method, path, status, {"errors": [entry]}, **kwargs)

    def honest(self) -> None:
        """Lie no longer."""
        with self._lock:
            self._rules.clear()

    def serve(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        method, path = handler.command, handler.path
        with self._lock:
            self.requests.append(f"{method} {path}")
            rule = next((r for r in self._rules if self._applies(r, method, path)), None)
            if rule is not None:
                rule.times -= 1
        if rule is not None and rule.lie is not None:
            handler.close_connection = True
            elsewhere = rule.headers["elsewhere"]
            with contextlib.suppress(OSError):  # the client has had enough
                rule.lie(Conversation(handler.wfile.write, path, elsewhere, self._closing))
            return
        if rule is None or rule.after:
            skipped = {"host", "connection", "content-length"}
            headers = {k: v for k, v in handler.headers.items() if k.lower() not in skipped}
            answer = requests.request(
                method, self._upstream + path, data=body, headers=headers, timeout=60
            )
            if rule is None:
                self._send(handler, answer.status_code, answer.content, dict(answer.headers))
                return
        if rule.held is not None:
            rule.held.set()
            if rule.go_on is not None:
                assert rule.go_on.wait(PATIENCE)
                self._send(handler, answer.status_code, answer.content, dict(answer.headers))
                return
            self._closing.wait()
        if rule.status is None:
            handler.close_connection = True
            with contextlib.suppress(OSError):  # the agent may be gone
                handler.connection.shutdown(socket.SHUT_RDWR)
            return
        self._send(handler, rule.status, rule.body, rule.headers)

    def close(self) -> None:
        self._closing.set()
        self._server.close()

    @staticmethod
    def _applies(rule: Rule, method: str, path: str) -> bool:
        return (
            rule.times > 0
            and re.fullmatch(rule.method, method) is not None
            and re.search(rule.path, path) is not None
        )

    @staticmethod
    def _send(
        handler: BaseHTTPRequestHandler, status: int, body: bytes, headers: dict[str, str]
    ) -> None:
        handler.send_response(status)
        dropped = {"connection", "content-length", "transfer-encoding", "content-encoding"}
        given = {k: v for k, v in headers.items() if k.lower() not in dropped}
        given.setdefault("Content-Type", "application/json")
        for name, value in given.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)
