"""The worker of the embedded server."""

from __future__ import annotations

import contextlib
import gc
import select
import selectors
import socket
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from gunicorn.http.body import Body, LengthReader
from gunicorn.http.message import Request
from gunicorn.http.parser import RequestParser
from gunicorn.workers.gthread import TConn, ThreadWorker

from placement_server.api.request import TURN_KEY
from placement_server.cmd.clients import Deadlines, received
from placement_server.cmd.crew import FULL

#: How long a thread stays with a connection after an answer. It keeps nobody waiting.
LINGER_MS: Final = 50


class LenientRequest(Request):  # type: ignore[misc]
    """A request whose Content-Length may be nonsense.

    The application answers such a request itself, in the form of its other errors. Where its body
    ends nobody can know, so none is read and the connection is closed after the answer: nothing
    behind it is taken for another request.
    """

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

    Every connection that sends or takes bytes has a thread, up to ``worker_connections``, and a
    time by which it has to be done. Only whole requests get one of the ``threads`` turns at the
    application, and they give it back before their answer is sent.

    A kept connection goes to another worker with its next request, where that one has fewer
    requests at the application. TLS keeps its state here, and its connections.

    :ivar seat: this worker's in the :class:`Crew`, set before it is forked; None without one.
    """

    wsgi: Any
    seat: int | None = None

    def init_process(self) -> None:
        RequestParser.mesg_class = LenientRequest
        self._deadlines = Deadlines(self.app.client_timeout)
        self._turns = threading.Semaphore(self.cfg.threads)
        self._at_application = 0
        # A signal may come while its handler's thread counts.
        self._counting = threading.RLock()
        self._in_crew = self.seat is not None and not self.cfg.is_ssl
        self._connection = threading.local()
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
        if not self._in_crew:
            super().run()
            return
        inbox = self.app.crew.inbox(self.seat)
        self.poller.register(inbox, selectors.EVENT_READ, self._take_over)
        self._count(0)
        try:
            super().run()
        finally:
            # However it ends, and while its threads may go on.
            self.alive = False
            self._count(0)
            self.app.crew.clear(self.seat)

    def handle_exit(self, sig: int, frame: Any) -> None:
        super().handle_exit(sig, frame)
        self._count(0)

    def handle_quit(self, sig: int, frame: Any) -> None:
        # Without ThreadWorker's shutdown of the pool: this thread may be about to give it
        # something, and hold the lock that the shutdown waits for.
        super(ThreadWorker, self).handle_quit(sig, frame)

    def handle(self, conn: Any) -> Any:
        while True:
            result = self._handle_one(conn)
            if result is not True or not self._asks_again(conn):
                return result

    def _asks_again(self, conn: Any) -> bool:
        """Wait a moment for the next request of a client that keeps its connection.

        Handing the connection to the main thread and back costs as much as a small request.
        """
        if not self.alive or conn.is_http2 or conn.parser.unreader.buf.getvalue():
            return False
        waiting = select.poll()
        waiting.register(conn.sock, select.POLLIN)
        return bool(waiting.poll(LINGER_MS))

    def _take_over(self, _inbox: socket.socket) -> None:
        given = self.app.crew.take(self.seat)
        if given is None:
            return
        try:
            conn = TConn(self.cfg, given, given.getpeername(), given.getsockname())
        except OSError:
            # The client has gone in the meantime.
            given.close()
            return
        # It was handed over because there is something to read.
        conn.data_ready = True
        self.nr_conns += 1
        self.enqueue_req(conn)

    def _handed_over(self, conn: Any) -> bool:
        if not self._in_crew or not self.alive:
            return False
        untouched = conn.initialized and not conn.parser.unreader.buf.getvalue()
        return untouched and self.app.crew.hand_over(conn.sock, self._at_application)

    def _count(self, change: int) -> None:
        """Count the requests at the application, and tell the crew."""
        with self._counting:
            self._at_application += change
            if not self._in_crew:
                return
            if not self.alive:
                self.app.crew.leave(self.seat)
            elif self.nr_conns < self.max_keepalived:
                self.app.crew.report(self.seat, self._at_application)
            else:
                self.app.crew.report(self.seat, FULL)

    def _handle_one(self, conn: Any) -> Any:
        if self._handed_over(conn):
            conn.close = _closed_already
            return False
        self._connection.value = conn
        self._deadlines.begin(conn)
        try:
            result = super().handle(conn)
            if result is False:
                # Here and not in the main thread: closing waits for the client.
                conn.close(graceful=True)
                conn.close = _closed_already
        finally:
            self._deadlines.end(conn)
        return result

    def murder_keepalived(self, force: bool = False) -> None:
        # The main thread is here once a second, and after each connection that came or went.
        self._deadlines.enforce()
        super().murder_keepalived(force)
        self._count(0)

    def _answered(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        self._turns.acquire()
        with contextlib.ExitStack() as turn:
            turn.callback(self._turns.release)
            # A second time, or when the application is done, this does nothing.
            environ[TURN_KEY] = turn.close
            answer: Iterable[bytes] = self._application(environ, start_response)
        return answer

    def _in_turn(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        with received(environ, self.app.max_body_size) as body:
            environ["wsgi.input"] = body
            self._deadlines.end(self._connection.value)
            self._count(1)
            try:
                answer = self._answered(environ, start_response)
            finally:
                self._count(-1)
        self._deadlines.begin(self._connection.value)
        return answer


def _closed_already(graceful: bool = False) -> None:
    """Stand in for the closing of a connection that is closed."""


def _is_length(value: Any) -> bool:
    return str(value).isascii() and str(value).isdigit()
