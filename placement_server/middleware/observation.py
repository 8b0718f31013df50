"""The request log, and the metrics of every request."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import Counter, Histogram

from placement_server import metrics
from placement_server.api.request import ROUTE_KEY, VERSION_KEY, shown_uri

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

#: Operators filter and scrape by this name.
LOG = logging.getLogger("placement_server.requestlog")

#: All other methods, which a client may make up, are one in the metrics.
_METHODS: Final = frozenset({"GET", "PUT", "POST", "DELETE", "HEAD", "OPTIONS", "PATCH"})


# As many as there are series: to look them up takes longer than to count.
@functools.cache
def _series(method: str, route: str, status: str) -> tuple[Counter, Histogram]:
    return (
        metrics.REQUESTS.labels(method, route, status),
        metrics.REQUEST_SECONDS.labels(method, route),
    )


class Observation:
    """Log and count every request; it is outside of everything that may answer one."""

    def __init__(self, application: WSGIApplication) -> None:
        self._application = application

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        start = time.perf_counter()
        starts: list[tuple[str, list[tuple[str, str]]]] = []

        def start_and_record(
            status: str, headers: list[tuple[str, str]], exc_info: Any = None
        ) -> Any:
            starts.append((status, headers))
            return start_response(status, headers, exc_info)

        chunks = self._application(environ, start_and_record)
        status, headers = starts[-1]
        self._count(environ, status, time.perf_counter() - start)
        if LOG.isEnabledFor(logging.INFO):
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
        length = next((value for name, value in headers if name.lower() == "content-length"), "-")
        LOG.info(
            '%s "%s %s" status: %s len: %s microversion: %s',
            environ.get("REMOTE_ADDR", "-"),
            environ["REQUEST_METHOD"],
            shown_uri(environ),
            status[:3],
            length,
            environ.get(VERSION_KEY, "-"),
        )
