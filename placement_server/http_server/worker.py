"""The worker process of the embedded server.

What it relies on beyond gunicorn's documentation is listed, with its shape, in
``tests/unit/server/test_gunicorn.py``.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import os
import select
import signal
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any, Final

from gunicorn.http.body import Body, LengthReader
from gunicorn.http.message import Request
from gunicorn.http.parser import RequestParser
from gunicorn.workers.gthread import ThreadWorker

from placement_server.api.request import TURN_KEY
from placement_server.http_server.clients import Deadlines, received
from placement_server.http_server.refusals import refusal

LOG = logging.getLogger(__name__)

#: Seconds for a request that is on its way, on a kept connection, when the worker is told to end.
LAST_REQUEST: Final = 0.2

#: Bytes of a request line; a longer one is 414.
LONGEST_REQUEST_LINE: Final = 1024 * 1024

_PR_SET_PDEATHSIG: Final = 1

_ENDINGS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)


class LenientRequest(Request):  # type: ignore[misc]
    """A request whose first line may be long and whose Content-Length may be nonsense.

    Candidate queries are longer than gunicorn's longest limit for that line, and its only other one
    is none. A nonsensical length the application answers itself, in the form of its other errors.
    Where the body ends nobody can know, so none is read and the connection is closed after the
    answer: nothing behind it is taken for another request.
    """

    def read_line(self, unreader: Any, buf: Any, limit: int = 0) -> Any:
        return super().read_line(unreader, buf, limit or LONGEST_REQUEST_LINE)

    def set_body_reader(self) -> None:
        lengths = [value for name, value in self.headers if name == "CONTENT-LENGTH"]
        framed = any(name == "TRANSFER-ENCODING" for name, _ in self.headers)
        if len(lengths) == 1 and not framed and not _is_length(lengths[0]):
            self.body = Body(LengthReader(self.unreader, 0))
            self.force_close()
            return
        super().set_body_reader()


class HttpWorker(ThreadWorker):  # type: ignore[misc]
    """A process with threads, in which slow clients do not keep others waiting.

    Every connection has a thread, up to ``worker_connections``, and a time by which its client has
    to be done with each request. Only whole requests get one of the ``threads`` turns at the
    application, and they give it back before their answer is sent.
    """

    sockets: list[Any]
    wsgi: Any

    def init_process(self) -> None:
        RequestParser.mesg_class = LenientRequest
        self._deadlines = Deadlines(self.app.limits.client_timeout)
        self._turns = threading.Semaphore(self.cfg.threads)
        self._connection = threading.local()
        # Readable, for every thread that waits for a client, once this worker is told to end.
        self._ending, self._end = os.pipe()
        super().init_process()

    def get_thread_pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(max_workers=self.worker_connections)

    def load_wsgi(self) -> None:
        super().load_wsgi()
        # What is there now stays. Going through it again and again, as the garbage collector does
        # when much is allocated, would stop all threads for a tenth of a second.
        gc.collect()
        gc.freeze()
        self._application = self.wsgi
        self.wsgi = self._in_turn

    def run(self) -> None:
        super().run()
        # Here and not in the parent's code that this was forked from, which may wait for threads.
        self.log.info("Worker exiting (pid: %s)", self.pid)
        logging.shutdown()
        os._exit(0)

    def notify(self) -> None:
        # The main thread is here at least once a second.
        super().notify()
        self._deadlines.enforce()

    def handle_exit(self, sig: int, frame: Any) -> None:
        if not self.booted:
            # Nobody is served yet, and to load the application takes seconds.
            os._exit(0)
        if self.alive:
            os.write(self._end, b"e")
        super().handle_exit(sig, frame)

    def handle_quit(self, sig: int, frame: Any) -> None:
        """End by Ctrl-C as by SIGTERM, and by SIGQUIT at once."""
        if sig == signal.SIGINT:
            self.handle_exit(sig, frame)
        else:
            # The end of the interpreter would wait for all threads.
            os._exit(0)

    def set_accept_enabled(self, enabled: bool) -> None:
        super().set_accept_enabled(enabled)
        if not enabled and not self.alive:
            self._close_listeners()

    def _close_listeners(self) -> None:
        """Take who waits to be connected, and refuse others from now on instead of at the end."""
        for listener in self.sockets:
            # Nor can anybody be taken who would be a file too many.
            with contextlib.suppress(OSError):
                while self.nr_conns < self.worker_connections and _is_readable(listener.fileno()):
                    self.accept(listener)
            listener.close()
        self.sockets = []

    def handle(self, conn: Any) -> bool:
        # Its own waiting would leave the thread, for the main thread to come back to it.
        conn.data_ready = True
        patience: float = self.app.limits.client_timeout
        while self._sends(conn, patience):
            if not self._handle_one(conn):
                # Here and not in the main thread: this waits for the client.
                conn.close(graceful=True)
                break
            patience = self.cfg.keepalive
        else:
            conn.close()
        conn.close = _closed_already
        return False

    def handle_request(self, req: Any, conn: Any) -> Any:
        if self.nr_conns > self.worker_connections - self.cfg.threads:
            # Others wait for a place, or soon will.
            req.force_close()
        return super().handle_request(req, conn)

    def handle_error(self, req: Any, client: Any, addr: Any, exc: Exception) -> None:
        del req
        refused = refusal(exc)
        where = addr[0] if addr else "a local socket"
        if refused.status != HTTPStatus.INTERNAL_SERVER_ERROR:
            # A warning would have the exception's text in it, and with it what was sent.
            LOG.info(
                "Refused a request of %s with %d: %s [%s]",
                *(where, refused.status, refused.reason, refused.request_id),
            )
        else:
            LOG.error(
                "A request of %s failed in the HTTP server [%s]",
                *(where, refused.request_id),
                exc_info=exc,
            )
        # The client may have gone in the meantime.
        with contextlib.suppress(OSError):
            client.sendall(refused.answer)

    def _sends(self, conn: Any, patience: float) -> bool:
        """Wait for the first bytes of a request, while the worker ends only for a moment."""
        if conn.parser is not None and conn.parser.unreader.buf.getvalue():
            return True
        client = conn.sock.fileno()
        waiting = select.poll()
        waiting.register(client, select.POLLIN)
        waiting.register(self._ending, select.POLLIN)
        readable = {descriptor for descriptor, _ in waiting.poll(patience * 1000)}
        return client in readable or (bool(readable) and _is_readable(client, LAST_REQUEST))

    def _handle_one(self, conn: Any) -> bool:
        """Answer a request; whether the connection is kept after it."""
        self._connection.value = conn
        self._deadlines.begin(conn)
        try:
            return super().handle(conn) is True
        finally:
            self._deadlines.end(conn)

    def _answered(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        with contextlib.ExitStack() as turn:
            if environ["PATH_INFO"] not in self.app.limits.unqueued:
                self._turns.acquire()
                turn.callback(self._turns.release)
                # Closed a second time, or when the application is done, this does nothing.
                environ[TURN_KEY] = turn.close
            answer: Iterable[bytes] = self._application(environ, start_response)
        return answer

    def _in_turn(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        with received(environ, self.app.limits.max_body_size) as body:
            environ["wsgi.input"] = body
            self._deadlines.end(self._connection.value)
            try:
                answer = self._answered(environ, start_response)
            finally:
                self._deadlines.begin(self._connection.value)
        return answer


def begin_life(parent: Any, worker: HttpWorker) -> None:
    """Prepare a process that was just forked: it ends with its parent, however that ends.

    The kernel sees to it, also where this process is stopped or busy. What it watches is the thread
    that forked: that is the main thread of gunicorn's parent process.

    :raises OSError: the kernel does not know prctl(PR_SET_PDEATHSIG).
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != worker.ppid:
        # It ended before it was watched.
        os._exit(0)
    # The parent's handlers keep a signal for the parent's loop, which does not run here.
    for number in _ENDINGS:
        signal.signal(number, signal.SIG_DFL)
    while not parent.SIG_QUEUE.empty():
        if parent.SIG_QUEUE.get() in _ENDINGS:
            os._exit(0)


def _is_readable(descriptor: int, seconds: float = 0) -> bool:
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    return bool(waiting.poll(seconds * 1000))


def _closed_already(graceful: bool = False) -> None:
    """Stand in for the closing of a connection that is closed."""


def _is_length(value: Any) -> bool:
    return str(value).isascii() and str(value).isdigit()
