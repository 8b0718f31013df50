"""The worker process of the embedded server.

It relies on undocumented parts of gunicorn, which ``tests/unit/http_server/test_gunicorn.py`` lists
with their signatures.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import logging
import os
import select
import signal
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from http import HTTPStatus
from typing import Any, Final

from gunicorn.http.body import LengthReader
from gunicorn.http.parser import RequestParser
from gunicorn.workers.gthread import ThreadWorker

from placement_server.api.request import TAKE_TURN_KEY, TURN_KEY, WAIT_KEY
from placement_server.http_server.clients import Deadlines, receive_body
from placement_server.http_server.heads import LenientRequest
from placement_server.http_server.refusals import refusal

LOG = logging.getLogger(__name__)

#: Seconds for a request that is on its way, on a kept connection, when the worker is told to end.
LAST_REQUEST: Final = 0.2

#: Seconds until a client is tried to be accepted again, and until the log says so again.
_ACCEPT_PAUSE: Final = 0.05
_COMPLAINT_PERIOD: Final = 10.0
_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

#: Seconds for which a worker that cannot start keeps its place.
_REPLACEMENT_PAUSE: Final = 1

_PR_SET_PDEATHSIG: Final = 1
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
#: Bytes of a block from which on it gets memory of its own, which is returned with it.
_LARGEST_IN_HEAP: Final = 8 * 1024 * 1024
#: Bytes of free memory at the end of the heap from which on it is returned.
_KEPT_FREE: Final = 16 * 1024 * 1024

_ENDINGS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)


class HttpWorker(ThreadWorker):  # type: ignore[misc]
    """A process with threads, in which slow clients do not keep others waiting.

    Every connection has a thread, up to ``worker_connections``, and its client a deadline for each
    request. Only whole requests get one of the ``threads`` turns at the application, and they
    release it before their answer is sent.
    """

    sockets: list[Any]
    wsgi: Any

    def init_process(self) -> None:
        try:
            self._init_process()
        except Exception:
            # The first workers end the server with their reason, mostly its configuration.
            if self.booted or self.age <= self.cfg.workers:
                raise
            LOG.exception(
                "A worker that replaces another cannot start, and is tried again in %d s.",
                _REPLACEMENT_PAUSE,
            )
            time.sleep(_REPLACEMENT_PAUSE)
            logging.shutdown()
            os._exit(1)

    def _init_process(self) -> None:
        RequestParser.mesg_class = LenientRequest
        # The settings are final now. Looking one up takes several calls otherwise, and each request
        # reads dozens.
        settings = self.cfg.settings.items()
        self.cfg.__dict__.update((name, setting.get()) for name, setting in settings)
        self._deadlines = Deadlines(self.app.limits.client_timeout)
        self._turns = threading.Semaphore(self.cfg.threads)
        self._connection = threading.local()
        self._complains_at = 0.0
        self._lacks_thread = False
        # Becomes readable, for all threads that wait for clients, once this worker is to end.
        self._ending, self._end = os.pipe()
        super().init_process()

    def get_thread_pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(max_workers=self.worker_connections)

    def load_wsgi(self) -> None:
        super().load_wsgi()
        # What is loaded now stays. The garbage collector would walk it again and again when much is
        # allocated, and stop all threads for a tenth of a second each time.
        gc.collect()
        gc.freeze()
        self._application = self.wsgi
        self.wsgi = self._in_turn

    def run(self) -> None:
        super().run()
        # Here and not in the parent's code that forked this, which may wait for threads.
        self.log.info("Worker exiting (pid: %s)", self.pid)
        logging.shutdown()
        os._exit(0)

    def notify(self) -> None:
        # The main thread calls this at least once a second.
        super().notify()
        self._deadlines.enforce()
        if self._lacks_thread:
            self._start_thread()

    def _start_thread(self) -> None:
        """Start a thread for a client that waits for one, if that is possible again."""
        # Every submission starts one, unless some are idle.
        with contextlib.suppress(RuntimeError):
            self.tpool.submit(_nothing)
            self._lacks_thread = False

    def handle_exit(self, sig: int, frame: Any) -> None:
        if not self.booted:
            # No client is served yet, and loading the application takes seconds.
            os._exit(0)
        if self.alive:
            os.write(self._end, b"e")
        super().handle_exit(sig, frame)

    def handle_quit(self, sig: int, frame: Any) -> None:
        """End gracefully on Ctrl-C, as on SIGTERM, and at once on SIGQUIT."""
        if sig == signal.SIGINT:
            self.handle_exit(sig, frame)
        else:
            # The exit of the interpreter would wait for all threads.
            os._exit(0)

    def accept(self, listener: Any) -> None:
        """Accept a client; one that the system has no descriptor for waits."""
        try:
            super().accept(listener)
        except OSError as error:
            if error.errno not in _EXHAUSTED:
                raise
            self._complain("Raise the limit of open files (LimitNOFILE= of its unit)", error)
            # The listener stays readable, and others may release what lacks here.
            time.sleep(_ACCEPT_PAUSE)

    def enqueue_req(self, conn: Any) -> None:
        """Queue a client for a thread: one that is started for it, or the next that is free."""
        try:
            self.tpool.submit(self._serve, conn)
        except RuntimeError as error:
            # It is queued, but no thread was started.
            self._lacks_thread = True
            self._complain("Give it more memory or tasks (TasksMax= of its unit)", error)

    def _serve(self, conn: Any) -> None:
        # Not by a callback of the submission: one that starts no thread raises instead of returning
        # what takes callbacks.
        outcome: Future[bool] = Future()
        try:
            outcome.set_result(self.handle(conn))
        except BaseException as error:
            # If it were cancelled, gunicorn would close the socket gracefully, and count the end
            # of a client twice whose socket is closed already.
            outcome.set_exception(error)
            raise
        finally:
            self.method_queue.defer(self.finish_request, conn, outcome)

    def _complain(self, advice: str, error: Exception) -> None:
        now = time.monotonic()
        if now >= self._complains_at:
            self._complains_at = now + _COMPLAINT_PERIOD
            LOG.error("Clients have to wait: %s. %s.", error, advice)

    def set_accept_enabled(self, enabled: bool) -> None:
        super().set_accept_enabled(enabled)
        if not enabled and not self.alive:
            self._close_listeners()

    def _close_listeners(self) -> None:
        """Accept the clients that wait, and refuse others from now on instead of at the end."""
        for listener in self.sockets:
            # A client that is one open file too many is not accepted.
            with contextlib.suppress(OSError):
                while self.nr_conns < self.worker_connections and _is_readable(listener.fileno()):
                    super().accept(listener)
            listener.close()
        self.sockets = []

    def handle(self, conn: Any) -> bool:
        # Or gunicorn would leave the thread to wait, and resume from the main thread.
        conn.data_ready = True
        patience: float = self.app.limits.client_timeout
        while self._sends(conn, patience):
            if not self._handle_once(conn):
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
            # Other clients wait for a connection, or soon will.
            req.force_close()
        return super().handle_request(req, conn)

    def _keepalive_after(self, conn: Any, keepalive: bool) -> bool:
        request = conn.parser.mesg
        if keepalive and _is_read(request):
            # So that gunicorn does not look for a rest of the body, and set timeouts for it.
            conn.parser.mesg = None
            return True
        return bool(super()._keepalive_after(conn, keepalive))

    def handle_error(self, req: Any, client: Any, addr: Any, exc: Exception) -> None:
        del req
        answer = refusal(exc)
        client_address = addr[0] if addr else "a local socket"
        if answer.status != HTTPStatus.INTERNAL_SERVER_ERROR:
            # The text of the exception is not logged: it quotes what was sent.
            LOG.info(
                "Refused a request of %s with %d: %s [%s]",
                *(client_address, answer.status, answer.reason, answer.request_id),
            )
        else:
            LOG.error(
                "A request of %s failed in the HTTP server [%s]",
                *(client_address, answer.request_id),
                exc_info=exc,
            )
        # The client may have gone in the meantime.
        with contextlib.suppress(OSError):
            client.sendall(answer.answer)

    def _sends(self, conn: Any, patience: float) -> bool:
        """Wait for the first bytes of a request.

        :param patience: seconds to wait; while the worker ends it is only a moment.
        """
        if conn.parser is not None and conn.parser.unreader.buf.getvalue():
            return True
        client = conn.sock.fileno()
        poll = select.poll()
        poll.register(client, select.POLLIN)
        poll.register(self._ending, select.POLLIN)
        readable = {descriptor for descriptor, _ in poll.poll(patience * 1000)}
        return client in readable or (bool(readable) and _is_readable(client, LAST_REQUEST))

    def _handle_once(self, conn: Any) -> bool:
        """Answer one request, and return whether the connection is kept after it."""
        self._connection.value = conn
        self._deadlines.begin(conn)
        try:
            return super().handle(conn) is True
        finally:
            self._deadlines.end(conn)

    def _wait(self, descriptor: int, seconds: float) -> None:
        """Wait until a descriptor is readable, the client is gone, or this worker is to end."""
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        # A client that closed only its own direction is answered at once, like one that is gone.
        poll.register(self._connection.value.sock.fileno(), select.POLLRDHUP)
        poll.register(self._ending, select.POLLIN)
        poll.poll(seconds * 1000)

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ["PATH_INFO"] in self.app.limits.unqueued_paths:
            chunks: Iterable[bytes] = self._application(environ, start_response)
            return chunks
        turn = _Turn(self._turns)
        environ[TURN_KEY] = turn.give_back
        environ[TAKE_TURN_KEY] = turn.take
        try:
            answer: Iterable[bytes] = self._application(environ, start_response)
        finally:
            turn.give_back()
        return answer

    def _in_turn(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        with receive_body(environ, self.app.limits.max_body_size) as body:
            environ["wsgi.input"] = body
            environ[WAIT_KEY] = self._wait
            self._deadlines.end(self._connection.value)
            try:
                answer = self._answer(environ, start_response)
            finally:
                self._deadlines.begin(self._connection.value)
        return answer


class _Turn:
    """One request's turn at the application, which it waits for."""

    def __init__(self, turns: threading.Semaphore) -> None:
        self._turns = turns
        self._is_taken = False
        self.take()

    def take(self) -> None:
        """Wait for a turn, unless there is one already."""
        if not self._is_taken:
            self._turns.acquire()
            self._is_taken = True

    def give_back(self) -> None:
        """Let another request begin; a second call does nothing."""
        is_taken, self._is_taken = self._is_taken, False
        if is_taken:
            self._turns.release()


def begin_life(parent: Any, worker: HttpWorker) -> None:
    """Prepare a process that was just forked.

    :raises OSError: the kernel does not know prctl(PR_SET_PDEATHSIG).
    """
    libc = ctypes.CDLL(None, use_errno=True)
    _end_with_parent(libc, worker.ppid)
    _tune_allocator(libc)
    # The parent's handlers keep a signal for the parent's loop, which does not run here.
    for number in _ENDINGS:
        signal.signal(number, signal.SIG_DFL)
    while not parent.SIG_QUEUE.empty():
        if parent.SIG_QUEUE.get() in _ENDINGS:
            os._exit(0)


def _end_with_parent(libc: ctypes.CDLL, parent_pid: int) -> None:
    """Have the kernel end this process when its parent ends, however that happens.

    It does so also while this process is stopped or busy. It watches the thread that forked: the
    main thread of gunicorn's parent process.
    """
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent_pid:
        # The parent ended before it was watched.
        os._exit(0)


def _tune_allocator(libc: ctypes.CDLL) -> None:
    """Have all threads allocate from one heap, which keeps some free memory for the next answer.

    glibc gives each thread an arena, and malloc_trim returns the top of none but the first to the
    system: threads that were busy once would keep tens of MiB. As they share the interpreter, they
    do not wait for one another here. Other C libraries have no such call, and no arenas.

    It also returns what an answer of a megabyte took, and the kernel clears it for the next one: a
    quarter of the CPU of such a request.
    """
    mallopt = getattr(libc, "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_IN_HEAP)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_FREE)


def _is_readable(descriptor: int, seconds: float = 0) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _is_read(request: Any) -> bool:
    """Check whether a body of known length has been read to its end."""
    reader = request.body.reader
    return isinstance(reader, LengthReader) and reader.length == 0


def _nothing() -> None:
    """Be the work with which a thread is started."""


def _closed_already(graceful: bool = False) -> None:
    """Replace ``close`` of a connection that is already closed."""
