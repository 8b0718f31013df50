"""Transports for tests: they record requests, and answer or fail in place of placement."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    pass
from compute_agent.placement.transport import WRITES, Microversion, Response, Timeout, Transport


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request that was made and what came of it (``response`` None: there was no answer)."""

    method: str
    path: str
    microversion: Microversion
    json: Any
    global_request_id: str | None
    response: Response | None


@dataclass
class RecordingTransport:
    """Keeps every request made through it.

    :param inner: what answers.
    :param before: called with method, path and body before a request goes out; it may answer in
        place of ``inner`` by returning a response, or raise as a transport does.
    :param after: called with method, path, body and the answer; what it returns is the answer, and
        it may raise, which is an answer lost on the way back.
    """

    inner: Transport
    before: Callable[[str, str, Any], Response | None] | None = None
    after: Callable[[str, str, Any, Response], Response] | None = None
    exchanges: list[Exchange] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def request(
        self,
        method: str,
        path: str,
        microversion: Microversion,
        json: object = None,
        global_request_id: str | None = None,
        timeout: Timeout | None = None,
        *,
        extended: bool = False,
    ) -> Response:
        response: Response | None = None
        # only where it is wanted: a transport need not know of extensions
        asked = {"extended": True} if extended else {}
        try:
            if self.before is not None:
                response = self.before(method, path, json)
            if response is None:
                response = self.inner.request(
                    method, path, microversion, json, global_request_id, timeout, **asked
                )
            if self.after is not None:
                response = self.after(method, path, json, response)
            return response
        finally:
            exchange = Exchange(method, path, microversion, json, global_request_id, response)
            with self._lock:
                self.exchanges.append(exchange)

    @property
    def requests(self) -> list[str]:
        """``METHOD /path`` of every request, in the order they ended."""
        return [f"{exchange.method} {exchange.path}" for exchange in self.exchanges]

    @property
    def writes(self) -> list[str]:
        return [
            f"{exchange.method} {exchange.path}"
            for exchange in self.exchanges
            if exchange.method in WRITES
        ]

    def clear(self) -> None:
        with self._lock:
            self.exchanges.clear()
