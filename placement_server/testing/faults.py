"""Failures of placement as its clients meet them, by request."""

from __future__ import annotations

import json
import re
import threading
from enum import Enum
from http import HTTPStatus
from typing import Any, Final

import requests
from msgspec import Struct
from requests.adapters import BaseAdapter

from placement_server.direct import response_to

ALWAYS: Final = -1
"""As a number of times: until `Faults.heal`."""


class Loss(Enum):
    """The part of an exchange that gets lost on the network."""

    REQUEST = "request"
    ANSWER = "answer"


class _Fault(Struct):
    method: str
    path: str
    outcome: HTTPStatus | Loss
    code: str
    times: int

    def concerns(self, method: str, path: str) -> bool:
        return self.times != 0 and self.method == method and bool(re.search(self.path, path))


class Faults:
    """Failures that the next requests of this process meet.

    Every method takes an HTTP method and a regular expression that is searched in path and query.

    :ivar failed_requests: `METHOD /path` of the requests that failed, in their order.
    """

    def __init__(self) -> None:
        self.failed_requests: list[str] = []
        self._faults: list[_Fault] = []
        self._mutex = threading.Lock()

    def refuse(
        self,
        method: str,
        path: str,
        status: int = HTTPStatus.SERVICE_UNAVAILABLE,
        *,
        code: str = "placement.undefined_code",
        times: int = 1,
    ) -> None:
        """Answer with an error in place of the server, which does nothing.

        :param code: of the error document, for instance `placement.concurrent_update` with 409.
        """
        self._add(_Fault(method, path, HTTPStatus(status), code, times))

    def lose_request(self, method: str, path: str, *, times: int = 1) -> None:
        """Lose the connection before the server has the request: it does nothing."""
        self._add(_Fault(method, path, Loss.REQUEST, "", times))

    def lose_answer(self, method: str, path: str, *, times: int = 1) -> None:
        """Lose the connection after the server did what it was asked: the client cannot know."""
        self._add(_Fault(method, path, Loss.ANSWER, "", times))

    def heal(self) -> None:
        """Forget every failure that is still to come."""
        with self._mutex:
            self._faults.clear()

    def _add(self, fault: _Fault) -> None:
        with self._mutex:
            self._faults.append(fault)

    def take(self, method: str, path: str) -> _Fault | None:
        """Return the failure that a request meets, and count it."""
        with self._mutex:
            for fault in self._faults:
                if fault.concerns(method, path):
                    fault.times -= fault.times > 0
                    self.failed_requests.append(f"{method} {path}")
                    return fault
        return None


class FaultyAdapter(BaseAdapter):
    """Sends requests through another adapter, but for those that are to fail."""

    def __init__(self, inner: BaseAdapter, faults: Faults) -> None:
        super().__init__()
        self._inner = inner
        self._faults = faults

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:  # type: ignore[override]
        """Return the answer, or the error in its place.

        :raises requests.ConnectionError: request or answer gets lost.
        """
        fault = self._faults.take(request.method or "", request.path_url)
        if fault is None:
            return self._inner.send(request, **kwargs)
        if isinstance(fault.outcome, HTTPStatus):
            return _refusal(request, fault.outcome, fault.code)
        if fault.outcome is Loss.ANSWER:
            self._inner.send(request, **kwargs)
        raise requests.ConnectionError(
            f"The {fault.outcome.value} was lost, as the test wanted.", request=request
        )

    def close(self) -> None:
        """Do nothing: the adapter behind belongs to its session."""


def _refusal(request: requests.PreparedRequest, status: HTTPStatus, code: str) -> requests.Response:
    error = {"status": status.value, "title": status.phrase, "detail": "An injected failure."}
    document = {"errors": [{**error, "code": code, "request_id": "req-injected"}]}
    return response_to(
        request,
        f"{status.value} {status.phrase}",
        [("content-type", "application/json")],
        [json.dumps(document).encode()],
    )
