"""One client's HTTP connection, over which any request may be lost."""

from __future__ import annotations

import http.client
import json
import time
from dataclasses import dataclass
from typing import Any, Final

HEADERS: Final = {
    "X-Auth-Token": "admin",
    # a server without the extensions ignores them
    "OpenStack-API-Version": "placement 1.39, placement-ext 1.1",
    "Accept": "application/json",
    "Content-Type": "application/json",
}
PATIENCE: Final = 400.0
"""Seconds without any answer after which a client gives up."""


class UnansweredRequest(Exception):
    """Nobody knows whether the request was carried out. `kind`: the status, or the error."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind


class NoService(Exception):
    """The service did not come back."""


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body) if self.body else None

    @property
    def error(self) -> str:
        """Code and detail of an error, on one line."""
        try:
            (entry,) = self.json["errors"]
        except (ValueError, TypeError, KeyError):
            return self.body[:300].decode(errors="replace")
        return f"{entry.get('code')}: {' '.join(entry['detail'].split())}"

    @property
    def is_lost_race(self) -> bool:
        return self.status == 409 and "placement.concurrent_update" in self.error


class Connection:
    """Not for use by several threads."""

    def __init__(self, port: int) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)

    def close(self) -> None:
        self._http.close()

    def send(self, method: str, path: str, body: Any = None) -> Answer:
        """One try. Raises UnansweredRequest when the connection broke, and for any 5xx."""
        payload = None if body is None else json.dumps(body).encode()
        try:
            self._http.request(method, path, body=payload, headers=HEADERS)
            response = self._http.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            self._http.close()
            raise UnansweredRequest(type(error).__name__, str(error)) from error
        if response.will_close:
            self._http.close()
        answer = Answer(response.status, content)
        if answer.status >= 500:
            raise UnansweredRequest(str(answer.status), answer.error)
        return answer

    def insist(self, method: str, path: str, body: Any = None) -> Answer:
        """Try until there is an answer. For requests that may be carried out more than once."""
        deadline = time.monotonic() + PATIENCE
        pause = 0.01
        while True:
            try:
                return self.send(method, path, body)
            except UnansweredRequest as error:
                if time.monotonic() > deadline:
                    raise NoService(f"{method} {path}: {error}") from error
            time.sleep(pause)
            pause = min(pause * 2, 0.2)

    def must(self, method: str, path: str, body: Any = None) -> Any:
        """The decoded body. Raises AssertionError for anything but success."""
        answer = self.insist(method, path, body)
        if answer.status >= 300:
            raise AssertionError(f"{method} {path}: {answer.status} {answer.error}")
        return answer.json
