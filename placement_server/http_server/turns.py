"""Turns at the application: more requests are received than work on the database at a time."""

from __future__ import annotations

import io
import os
import select
import signal
from collections.abc import Iterable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from placement_server.api.request import TAKE_TURN_KEY, TURN_KEY, WAIT_KEY

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

_LONGEST_BODY: Final = 64 * 1024 * 1024
"""Bytes that are read of a body which is too long at most: its client gets to the answer."""


class _Turn:
    """The turn of one request, which may give it back early and take it again.

    :param turns: those that are free; a semaphore of threading does in Python what this does in C.
    """

    __slots__ = ("_is_taken", "_turns")

    def __init__(self, turns: SimpleQueue[None]) -> None:
        self._turns = turns
        self._is_taken = False

    def take(self) -> None:
        self._turns.get()
        self._is_taken = True

    def give_back(self) -> None:
        if self._is_taken:
            self._is_taken = False
            self._turns.put(None)


class Turns:
    """Lets a few requests at a time into the application, each when its body is there.

    It is made in the main thread of a worker, whose end it notices.

    :param number: of requests at a time.
    :param max_body_size: the most bytes of a body that are kept for the application.
    :param unqueued_path: path of requests that do not wait for a turn: the health check.
    """

    def __init__(
        self, application: WSGIApplication, number: int, max_body_size: int, unqueued_path: str
    ) -> None:
        self._application = application
        self._turns: SimpleQueue[None] = SimpleQueue()
        for _ in range(number):
            self._turns.put(None)
        self._max_body_size = max_body_size
        self._unqueued_path = unqueued_path
        # Becomes readable, for all threads that wait, with the signal that ends this process.
        self._ending, end = os.pipe()
        os.set_blocking(end, False)
        signal.set_wakeup_fd(end, warn_on_full_buffer=False)

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        environ["wsgi.input"] = self._received_body(environ)
        environ[WAIT_KEY] = self._wait
        if environ["PATH_INFO"] == self._unqueued_path:
            return self._application(environ, start_response)
        turn = _Turn(self._turns)
        turn.take()
        environ[TURN_KEY], environ[TAKE_TURN_KEY] = turn.give_back, turn.take
        try:
            return self._application(environ, start_response)
        finally:
            turn.give_back()

    def _received_body(self, environ: dict[str, Any]) -> io.BytesIO:
        """Return the body, of one that is too long a part: the application refuses it anyway."""
        body, size = io.BytesIO(), 0
        is_chunked = "HTTP_TRANSFER_ENCODING" in environ
        if environ.get("CONTENT_LENGTH", "0") in ("", "0") and not is_chunked:
            return body
        source, most = environ["wsgi.input"], self._max_body_size
        length = int(environ.get("CONTENT_LENGTH") or 0)
        is_kept, longest = length <= most, max(_LONGEST_BODY, most + 1)
        if not is_chunked:
            # to ask for more than there is costs as much again
            longest = min(longest, length)
        while size < longest and (piece := source.read(65_536)):
            size += len(piece)
            if is_kept and body.tell() <= most:
                body.write(piece)
        body.seek(0)
        return body

    def _wait(self, descriptor: int, seconds: float) -> None:
        """Wait until a descriptor is readable, or this process is to end."""
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.register(self._ending, select.POLLIN)
        poll.poll(seconds * 1000)
