"""A server to which nobody was to go: it notes the tokens that arrive."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.fixtures.stub_server import StubHandler, StubServer


@dataclass
class Elsewhere:
    """:ivar visits: the headers of every request."""

    url: str
    visits: list[dict[str, str]] = field(default_factory=list)


@contextmanager
def listening_elsewhere() -> Iterator[Elsewhere]:
    """Answers everything with an empty object."""
    place = Elsewhere("")

    class Handler(StubHandler):
        def _serve(self) -> None:
            place.visits.append(dict(self.headers.items()))
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        do_GET = do_PUT = do_POST = do_DELETE = _serve

    with StubServer(Handler) as server:
        place.url = server.url
        yield place
