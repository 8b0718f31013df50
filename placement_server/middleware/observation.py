"""Observation of requests: their ids, when they are logged, and answers to all other errors."""

from __future__ import annotations

import functools
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Iterable
from multiprocessing import util
from typing import TYPE_CHECKING, Any, Final

from oslo_context import context

from compute_agent.programs import log_lines
from placement_server import errors
from placement_server.api.request import (
    REQUEST_ID_KEY,
    ROUTE_KEY,
    VERSION_KEY,
    global_request_id,
    shown_uri,
)
from placement_server.api.response import Headers
from placement_server.middleware import request_log
from placement_server.middleware.request_log import Answer

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

LOG = logging.getLogger(__name__)

_DELAY: Final = 0.05
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
            Answer(
                log_context,
                environ.get("REMOTE_ADDR", "-"),
                environ["REQUEST_METHOD"],
                shown_uri(environ),
                environ.get(ROUTE_KEY, "none"),
                environ.get(VERSION_KEY, "-"),
                status[:3],
                _length(headers),
                time.perf_counter() - start,
                time.time(),
            )
        )
        return chunks


def _length(headers: Headers) -> str:
    # it is among the last
    for name, value in reversed(headers):
        if name.lower() == "content-length":
            return value
    return "-"


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
            **_values_of_user(self.user_id, self.project_id),
            "request_id": self.request_id,
            "global_request_id": self.global_request_id,
        }


_LOGGING_VALUES: Final = log_lines.LooseContext().get_logging_values()


@functools.lru_cache(maxsize=128)
def _values_of_user(user_id: str | None, project_id: str | None) -> dict[str, Any]:
    identity = f"{user_id or '-'} {project_id or '-'} - - -"
    return {
        **_LOGGING_VALUES,
        "user": user_id,
        "project": project_id,
        "project_id": project_id,
        "user_identity": identity,
    }


class Answers:
    """Answers that wait to be logged and counted, by a thread that takes all of a moment at a time.

    Beside each request, on caches that its database has cooled, its line and its numbers take three
    times as long. To wake the thread for one answer alone would take longer still.
    """

    def __init__(self) -> None:
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._answers: deque[Answer] = deque()
        self._last_answer = 0.0
        self._are_any = threading.Event()
        self._recording, self._starting = threading.Lock(), threading.Lock()
        self._has_thread = False

    def add(self, answer: Answer) -> None:
        """Leave an answer to the thread, unless it is alone for the moment and the log is free."""
        is_alone = answer.answered_at - self._last_answer > _DELAY and not self._answers
        self._last_answer = answer.answered_at
        if len(self._answers) >= _MOST_ANSWERS:
            # never those of others, which a slow log may take long for
            request_log.record([answer])
            return
        self._answers.append(answer)
        if is_alone and self.record_all(0):
            return
        if not self._are_any.is_set():
            if not self._has_thread:
                try:
                    self._start_thread()
                except RuntimeError:
                    # the system has no thread for it, and the request is answered anyway
                    self.record_all(0)
                    return
            self._are_any.set()

    def record_all(self, patience: float = -1) -> bool:
        """Log and count what waits, now, and return whether that was done.

        :param patience: the seconds after which to leave that to a thread which does so already.
        """
        if not self._recording.acquire(timeout=patience):
            return False
        try:
            take = self._answers.popleft
            request_log.record([take() for _ in range(len(self._answers))])
        finally:
            self._recording.release()
        return True

    def _start_thread(self) -> None:
        with self._starting:
            if not self._has_thread:
                threading.Thread(target=self._run, name="request-log", daemon=True).start()
                self._has_thread = True
                # at the end of a process, also of a worker of `placement-server serve`
                util.Finalize(None, self.record_all, exitpriority=0)

    def _run(self) -> None:
        try:
            while self._are_any.wait():
                time.sleep(_DELAY)
                self._are_any.clear()
                self.record_all()
        finally:
            # a defect, or no memory: the next answer starts another, in this order
            self._has_thread = False
            self._are_any.clear()


ANSWERS: Final = Answers()
