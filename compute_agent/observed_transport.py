"""A transport that tells somebody of every answer: metrics count them, the watchdog is fed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from compute_agent import errors

if TYPE_CHECKING:
    from compute_agent.report.transport import Microversion, Response, Timeout, Transport


class ObservedTransport:
    """Passes every request on.

    :param observe: called with the method and the status, ``none`` where there was no answer.
    """

    def __init__(self, inner: Transport, observe: Callable[[str, str], None]) -> None:
        self._inner = inner
        self._observe = observe

    def request(
        self,
        method: str,
        path: str,
        microversion: Microversion,
        json: object = None,
        global_request_id: str | None = None,
        timeout: Timeout | None = None,
    ) -> Response:
        """Send one request and tell how it was answered."""
        try:
            response = self._inner.request(
                method, path, microversion, json, global_request_id, timeout
            )
        except errors.PlacementError:
            self._observe(method, "none")
            raise
        self._observe(method, str(response.status))
        return response
