"""Observation of requests: their ids, the request log, metrics, and answers to all other errors."""

from __future__ import annotations

import functools
import logging
import re
import time
import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from oslo_context import context
from prometheus_client import Counter, Histogram

from placement_server import errors
from placement_server.api.request import REQUEST_ID_KEY, ROUTE_KEY, VERSION_KEY, shown_uri
from placement_server.metrics import metrics

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

LOG = logging.getLogger(__name__)

REQUEST_LOG = logging.getLogger("placement_server.requestlog")
"""Operators filter and scrape by this name."""

_LINE: Final = '%s "%s %s" status: %s len: %s microversion: %s'

_REQUEST_ID: Final = re.compile(
    r"req-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE
)


def global_request_id(environ: errors.Environ) -> str | None:
    """Return the id that the client sent, if it has the form of one."""
    inbound = environ.get("HTTP_X_OPENSTACK_REQUEST_ID")
    return inbound if inbound and _REQUEST_ID.fullmatch(inbound) else None


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
        request_id = environ[REQUEST_ID_KEY] = f"req-{uuid.uuid4()}"
        if environ.get("HTTP_ACCEPT", "") in ("", "*/*"):
            environ["HTTP_ACCEPT"] = "application/json"
        context.RequestContext(request_id=request_id, global_request_id=global_request_id(environ))
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
        self._count(environ, status, time.perf_counter() - start)
        if REQUEST_LOG.isEnabledFor(logging.INFO):
            self._log(environ, status, headers)
        return chunks

    @staticmethod
    def _count(environ: dict[str, Any], status: str, seconds: float) -> None:
        method = environ["REQUEST_METHOD"]
        if method not in _METHODS:
            method = "other"
        route = environ.get(ROUTE_KEY, "none")
        requests, request_seconds = _series(method, route, status[:3])
        requests.inc()
        request_seconds.observe(seconds)

    @staticmethod
    def _log(environ: dict[str, Any], status: str, headers: list[tuple[str, str]]) -> None:
        # it is among the last
        lengths = (value for name, value in reversed(headers) if name.lower() == "content-length")
        arguments = (
            environ.get("REMOTE_ADDR", "-"),
            environ["REQUEST_METHOD"],
            shown_uri(environ),
            status[:3],
            next(lengths, "-"),
            environ.get(VERSION_KEY, "-"),
        )
        # without the search for the caller
        record = REQUEST_LOG.makeRecord(
            REQUEST_LOG.name, logging.INFO, __file__, 0, _LINE, arguments, None
        )
        REQUEST_LOG.handle(record)
