"""Observation of requests: their ids, the request log, metrics, and answers to all other errors."""

from __future__ import annotations

import functools
import logging
import os
import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from oslo_context import context
from prometheus_client import Counter, Histogram

from placement_server import errors
from placement_server.api.request import (
    REQUEST_ID_KEY,
    ROUTE_KEY,
    VERSION_KEY,
    global_request_id,
    shown_uri,
)
from placement_server.metrics import metrics

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

LOG = logging.getLogger(__name__)

REQUEST_LOG = logging.getLogger("placement_server.requestlog")
"""Operators filter and scrape by this name."""

_LINE: Final = '%s "%s %s" status: %s len: %s microversion: %s'

_METHODS: Final = frozenset({"GET", "PUT", "POST", "DELETE", "HEAD", "OPTIONS", "PATCH"})
"""All other methods, which a client may make up, are one in the metrics."""


# As many as there are series: to look them up takes longer than to count.
@functools.cache
def _series(method: str, route: str, status: str) -> tuple[Counter, Histogram]:
    return (
        metrics.REQUESTS.labels(method, route, status),
        metrics.REQUEST_SECONDS.labels(method, route),
    )


class Observation:
    """Give every request an id, and log and count it; outside of everything that may answer one.

    The id is in the log, in errors and in the answer's headers. One that the client sends is
    another service's: it appears in the log as the global request id, so that one action of a user
    can be followed through all services.

    It also settles the Accept header, on which every answer from here on inwards depends: no
    preference means JSON.
    """

    def __init__(self, application: WSGIApplication) -> None:
        self._application = application

    def __call__(self, environ: errors.Environ, start_response: StartResponse) -> Iterable[bytes]:
        start = time.perf_counter()
        digits = os.urandom(16).hex()
        # the form of a random UUID
        request_id = environ[REQUEST_ID_KEY] = (
            f"req-{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"
        )
        if environ.get("HTTP_ACCEPT", "") in ("", "*/*"):
            environ["HTTP_ACCEPT"] = "application/json"
        _Context(request_id, global_request_id(environ))
        status, headers = "", []

        def start_and_record(
            new_status: str, new_headers: list[tuple[str, str]], exc_info: Any = None
        ) -> Any:
            nonlocal status, headers
            status, headers = new_status, [*new_headers, ("x-openstack-request-id", request_id)]
            return start_response(status, headers, exc_info)

        try:
            chunks = self._application(environ, start_and_record)
        except Exception as error:
            LOG.exception(
                "The request %s %s failed outside of the API and is answered with 500",
                environ["REQUEST_METHOD"],
                shown_uri(environ),
            )
            new_status, new_headers, body = errors.render(
                errors.InternalError(str(error)), environ, None, request_id
            )
            start_and_record(new_status, new_headers)
            chunks = [body]
        method = environ["REQUEST_METHOD"]
        requests, request_seconds = _series(
            method if method in _METHODS else "other", environ.get(ROUTE_KEY, "none"), status[:3]
        )
        requests.inc()
        request_seconds.observe(time.perf_counter() - start)
        if REQUEST_LOG.isEnabledFor(logging.INFO):
            _log(environ, status, headers)
        return chunks


class _Context(context.RequestContext):  # type: ignore[misc]
    """The request of a thread, with no more than the lines of its log show."""

    user_id: str | None = None
    project_id: str | None = None

    def __init__(self, request_id: str, global_request_id: str | None) -> None:
        self.request_id, self.global_request_id = request_id, global_request_id
        self.update_store()

    def get_logging_values(self) -> dict[str, Any]:
        """Return what formats of lines may name."""
        return {
            **_LOGGING_VALUES,
            "request_id": self.request_id,
            "global_request_id": self.global_request_id,
            "user": self.user_id,
            "project": self.project_id,
            "project_id": self.project_id,
            "user_identity": f"{self.user_id or '-'} {self.project_id or '-'} - - -",
        }


class _LooseContext(context.RequestContext):  # type: ignore[misc]
    """A context that this thread does not keep: its lines would all have a request id."""

    def update_store(self) -> None:
        """Leave the thread as it is."""


_LOGGING_VALUES: Final = _LooseContext().get_logging_values()


def _new_record(arguments: tuple[object, ...]) -> logging.LogRecord:
    # without the search for the caller
    return REQUEST_LOG.makeRecord(
        REQUEST_LOG.name, logging.INFO, __file__, 0, _LINE, arguments, None
    )


class _LikeRecord(threading.local):
    """A record of the request log, as all of one thread are but for its time and its arguments."""

    def __init__(self) -> None:
        self.attributes = vars(_new_record(()))


_LIKE_RECORD: Final = _LikeRecord()


def _log(environ: errors.Environ, status: str, headers: list[tuple[str, str]]) -> None:
    length = "-"
    # it is among the last
    for name, value in reversed(headers):
        if name.lower() == "content-length":
            length = value
            break
    arguments = (
        environ.get("REMOTE_ADDR", "-"),
        environ["REQUEST_METHOD"],
        shown_uri(environ),
        status[:3],
        length,
        environ.get(VERSION_KEY, "-"),
    )
    REQUEST_LOG.handle(_record(arguments))


def _record(arguments: tuple[object, ...]) -> logging.LogRecord:
    if logging.getLogRecordFactory() is not logging.LogRecord:
        # What others add, such as the trace of a request, is not the same for all of a thread.
        return _new_record(arguments)
    record, now = logging.LogRecord.__new__(logging.LogRecord), time.time()
    like = _LIKE_RECORD.attributes
    vars(record).update(
        like,
        created=now,
        msecs=int(now % 1 * 1000) + 0.0,
        relativeCreated=like["relativeCreated"] + (now - like["created"]) * 1000,
        process=os.getpid(),
        args=arguments,
    )
    return record
