"""The published openstack-placement behind an HTTP port, for agents that are real processes."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler

from tests.fixtures.stub_server import StubHandler, StubServer
from tests.functional.agent.processes import PlacementProcess
from tests.functional.api.differential.reference import Reference


@dataclass
class PublishedPlacement(PlacementProcess):
    """The package in a process of its own; one request at a time, by whatever connection it comes.

    :raises EnvironmentMissing: it is not installed and cannot be.
    """

    def start(self) -> None:
        self._reference = Reference(self.directory)
        self._lock = threading.Lock()
        published = self

        class Handler(StubHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                published.serve(self, self.rfile.read(length) if length else None)

            do_GET = do_PUT = do_POST = do_DELETE = _serve

        self._server = StubServer(Handler)
        self.port = self._server.server_port

    def serve(self, handler: BaseHTTPRequestHandler, body: bytes | None) -> None:
        with self._lock:
            answer = self._reference(
                handler.command, handler.path, headers=dict(handler.headers), body=body
            )
        handler.send_response(answer.status)
        for name, value in answer.headers.items():
            if name.lower() not in ("connection", "content-length"):
                handler.send_header(name, value)
        if answer.status != 204:
            handler.send_header("Content-Length", str(len(answer.body)))
        handler.end_headers()
        handler.wfile.write(answer.body)

    def kill(self) -> None:
        self._server.close()
        self._reference.close()
