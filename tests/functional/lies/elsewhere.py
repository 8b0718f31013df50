"""A server to which nobody was to go: it notes the tokens that arrive."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Elsewhere:
    """:ivar visits: the headers of every request."""

    url: str
    visits: list[dict[str, str]] = field(default_factory=list)


@contextmanager
def listening_elsewhere() -> Iterator[Elsewhere]:
    """Answers everything with an empty object."""
    place = Elsewhere("")

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            place.visits.append(dict(self.headers.items()))
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        do_GET = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815

        def log_message(self, *_args: object) -> None:
            """Nothing: the visits are noted."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    place.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield place
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
