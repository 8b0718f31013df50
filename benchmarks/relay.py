"""A transport of the report client that passes requests on, for what happens around each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from compute_agent.placement.transport import Microversion, Response, Timeout, Transport


class Relay(ABC):
    """Passes every request on to another transport, as it is."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner

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
        def send() -> Response:
            return self._inner.request(
                method, path, microversion, json, global_request_id, timeout, extended=extended
            )

        return self.relay(method, path, send)

    @abstractmethod
    def relay(self, method: str, path: str, send: Callable[[], Response]) -> Response:
        """Do what is to be done around one request, and return its answer.

        :param send: makes the request; raises as a transport does when there is no answer.
        """
