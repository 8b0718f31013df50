"""The worker of the embedded server."""

from __future__ import annotations

import select
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from gunicorn.http.body import Body, LengthReader
from gunicorn.http.message import Request
from gunicorn.http.parser import RequestParser
from gunicorn.workers.gthread import ThreadWorker

from placement_server.cmd.clients import Deadlines, received

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
    """

    wsgi: Any

    def init_process(self) -> None:
        RequestParser.mesg_class = LenientRequest
        self._deadlines = Deadlines(self.app.client_timeout)
        self._turns = threading.Semaphore(self.cfg.threads)
        self._connection = threading.local()
        super().init_process()

    def get_thread_pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(max_workers=self.worker_connections)

    def load_wsgi(self) -> None:
        super().load_wsgi()
        self._application = self.wsgi
        self.wsgi = self._in_turn

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

    def _handle_one(self, conn: Any) -> Any:
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
        # The main thread is here once a second.
        self._deadlines.enforce()
        super().murder_keepalived(force)

    def _in_turn(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        with received(environ, self.app.max_body_size) as body:
            environ["wsgi.input"] = body
            self._deadlines.end(self._connection.value)
            with self._turns:
                answer: Iterable[bytes] = self._application(environ, start_response)
        self._deadlines.begin(self._connection.value)
        return answer


def _closed_already(graceful: bool = False) -> None:
    """Stand in for the closing of a connection that is closed."""


def _is_length(value: Any) -> bool:
    return str(value).isascii() and str(value).isdigit()
