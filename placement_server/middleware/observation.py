"""Observation of requests: their ids, the request log, metrics, and answers to all other errors."""

from __future__ import annotations

import functools
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Iterable
from multiprocessing import util
from typing import TYPE_CHECKING, Any, Final, NamedTuple

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
from placement_server.api.response import Headers
from placement_server.metrics import metrics

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

LOG = logging.getLogger(__name__)

REQUEST_LOG = logging.getLogger("placement_server.requestlog")
"""Operators filter and scrape by this name."""

_LINE: Final = '%s "%s %s" status: %s len: %s microversion: %s'

_METHODS: Final = frozenset({"GET", "PUT", "POST", "DELETE", "HEAD", "OPTIONS", "PATCH"})
"""All other methods, which a client may make up, are one in the metrics."""

_DELAY: Final = 0.02
"""Seconds that an answer waits for others which are logged with it."""

_MOST_ANSWERS: Final = 10_000
"""Answers that may wait; where the log takes no more, requests wait for it."""


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
        log_context = _Context(request_id, global_request_id(environ))
        status = ""
        headers: Headers = []

        def start_and_record(new_status: str, new_headers: Headers, exc_info: Any = None) -> Any:
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
        ANSWERS.add(
            _Answer(
                log_context,
                environ.get("REMOTE_ADDR", "-"),
                environ["REQUEST_METHOD"],
                shown_uri(environ),
                environ.get(ROUTE_KEY, "none"),
                environ.get(VERSION_KEY, "-"),
                status[:3],
                headers,
                time.perf_counter() - start,
                time.time(),
            )
        )
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


class _Answer(NamedTuple):
    """What the log and the metrics show of a request that was answered."""

    log_context: _Context
    client: str
    method: str
    uri: str
    route: str
    version: str
    status: str
    headers: Headers
    seconds: float
    answered_at: float


class Answers:
    """Answers that wait to be logged and counted, by a thread that takes all of a moment at a time.

    Beside each request, on caches that its database has cooled, its line and its numbers take three
    times as long. To wake the thread for one answer alone would take longer still.
    """

    def __init__(self) -> None:
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._answers: deque[_Answer] = deque()
        self._last_answer = 0.0
        self._are_any = threading.Event()
        self._recording = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, answer: _Answer) -> None:
        """Leave an answer to the thread, unless it is the only one for the moment."""
        is_alone = answer.answered_at - self._last_answer > _DELAY and not self._answers
        self._last_answer = answer.answered_at
        if is_alone or len(self._answers) >= _MOST_ANSWERS:
            # never those of others, which a slow log may take long for
            _record(answer)
            return
        self._answers.append(answer)
        if not self._are_any.is_set():
            if self._thread is None or not self._thread.is_alive():
                try:
                    self._start_thread()
                except RuntimeError:
                    # the system has no thread for it, and the request is answered anyway
                    self.record_all(0)
                    return
            self._are_any.set()

    def record_all(self, patience: float = -1) -> None:
        """Log and count what waits, now.

        :param patience: the seconds after which to leave that to a thread which does so already.
        """
        if self._recording.acquire(timeout=patience):
            try:
                for _ in range(len(self._answers)):
                    _record(self._answers.popleft())
            finally:
                self._recording.release()

    def _start_thread(self) -> None:
        with self._recording:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="request-log", daemon=True)
                self._thread.start()
                # at the end of a process, also of a worker of `placement-server serve`
                util.Finalize(None, self.record_all, exitpriority=0)

    def _run(self) -> None:
        while self._are_any.wait():
            time.sleep(_DELAY)
            self._are_any.clear()
            self.record_all()


ANSWERS: Final = Answers()


# As many as there are series: to look them up takes longer than to count.
@functools.cache
def _series(method: str, route: str, status: str) -> tuple[Counter, Histogram]:
    return (
        metrics.REQUESTS.labels(method, route, status),
        metrics.REQUEST_SECONDS.labels(method, route),
    )


def _record(answer: _Answer) -> None:
    method = answer.method if answer.method in _METHODS else "other"
    requests, request_seconds = _series(method, answer.route, answer.status)
    requests.inc()
    request_seconds.observe(answer.seconds)
    if REQUEST_LOG.isEnabledFor(logging.INFO):
        _log(answer)


def _log(answer: _Answer) -> None:
    length = "-"
    # it is among the last
    for name, value in reversed(answer.headers):
        if name.lower() == "content-length":
            length = value
            break
    values = (answer.client, answer.method, answer.uri, answer.status, length, answer.version)
    answer.log_context.update_store()
    # without the search for the caller
    record = REQUEST_LOG.makeRecord(
        REQUEST_LOG.name, logging.INFO, __file__, 0, _LINE, values, None
    )
    record.relativeCreated -= (record.created - answer.answered_at) * 1000
    record.created = answer.answered_at
    record.msecs = int(answer.answered_at % 1 * 1000) + 0.0
    REQUEST_LOG.handle(record)
