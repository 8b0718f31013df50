"""Transports for tests: they record requests, and answer or fail in place of placement."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from msgspec import Struct, field

from compute_agent.placement.transports.transport import Request, Response, Transport


class Exchange(Struct, frozen=True):
    """One request that was made and what came of it (`response` None: there was no answer)."""

    request: Request
    response: Response | None


class RecordingTransport(Struct):
    """Keeps every request made through it.

    :param inner: what answers.
    :param before: called with method, path and body before a request goes out; it may answer in
        place of `inner` by returning a response, or raise as a transport does.
    :param after: called with method, path, body and the answer; what it returns is the answer, and
        it may raise, which is an answer lost on the way back.
    """

    inner: Transport
    before: Callable[[str, str, Any], Response | None] | None = None
    after: Callable[[str, str, Any, Response], Response] | None = None
    exchanges: list[Exchange] = []
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def send(self, request: Request) -> Response:
        response: Response | None = None
        try:
            if self.before is not None:
                response = self.before(request.method, request.path, request.json)
            if response is None:
                response = self.inner.send(request)
            if self.after is not None:
                response = self.after(request.method, request.path, request.json, response)
            return response
        finally:
            with self._lock:
                self.exchanges.append(Exchange(request, response))

    @property
    def requests(self) -> list[str]:
        """`METHOD /path` of every request, in the order they ended."""
        return [str(exchange.request) for exchange in self.exchanges]

    @property
    def writes(self) -> list[str]:
        return [str(exchange.request) for exchange in self.exchanges if exchange.request.writes]

    def clear(self) -> None:
        with self._lock:
            self.exchanges.clear()
