"""A transport of the report client that passes requests on, for what happens around each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial

from compute_agent.placement.transports.transport import Request, Response, Transport


class Relay(ABC):
    """Passes every request on to another transport, as it is."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner

    def send(self, request: Request) -> Response:
        return self.relay(request.method, request.path, partial(self._inner.send, request))

    @abstractmethod
    def relay(self, method: str, path: str, send: Callable[[], Response]) -> Response:
        """Do what is to be done around one request, and return its answer.

        :param send: makes the request; raises as a transport does when there is no answer.
        """
