"""A small HTTP client whose own cost stays below what it measures."""

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

HEADERS = {
    "X-Auth-Token": "admin",
    "OpenStack-API-Version": "placement 1.39",
    "Accept": "application/json",
    "Content-Type": "application/json",
}


class Client:
    """One connection, kept open where the server allows it. Not for use by several threads.

    :param timeout: seconds to wait for an answer; `TimeoutError` comes after that.
    """

    def __init__(self, url: str, timeout: float = 600) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)

    def send(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        """The status and the raw body of the answer."""
        payload = None if body is None else json.dumps(body).encode()
        try:
            return self._exchange(method, path, payload)
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
            # A kept connection that the server closed while it was idle.
            self._connection.close()
            return self._exchange(method, path, payload)

    def must(self, method: str, path: str, body: object = None) -> Any:
        """The decoded body; `RuntimeError` with the answer when the status is an error."""
        status, raw = self.send(method, path, body)
        if status >= 400:
            raise RuntimeError(f"{method} {path}: {status} {raw[:500]!r}")
        return json.loads(raw) if raw else None

    def _exchange(self, method: str, path: str, payload: bytes | None) -> tuple[int, bytes]:
        self._connection.request(method, path, body=payload, headers=HEADERS)
        answer = self._connection.getresponse()
        raw = answer.read()
        if answer.will_close:
            self._connection.close()
        return answer.status, raw
