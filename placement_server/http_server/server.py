"""The parent of the worker processes: granian with our settings."""

from __future__ import annotations

import ctypes
import gc
import logging
import multiprocessing
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

from granian import Granian
from granian.constants import HTTPModes, Interfaces, SSLProtocols
from granian.http import HTTP1Settings
from granian.log import LogLevels

from compute_agent.programs import log_lines
from placement_server.http_server.certificates import Certificate, CertificateWatch
from placement_server.http_server.turns import Turns

LOG = logging.getLogger(__name__)

_THREADS: Final = 1000
"""Threads of one worker at most, started when they are needed: each has a request that is received,
waits for its turn or for changes, or has its turn."""

_CONNECTIONS: Final = 1_000_000
"""Of one worker at most, also idle ones: others wait to be accepted. Files that may be open end
sooner."""

_BUFFER_SIZE: Final = 131_072
"""Bytes of a head, and of a body that granian has read and not handed over, several times each."""

# Seconds until an application is tried again, workers are told again to end, a port is asked,
# the next worker is replaced.
_PAUSE: Final = 1.0
_SIGNAL_PAUSE: Final = 0.3
_SHORT_PAUSE: Final = 0.02
_RESPAWN_PAUSE: Final = 0.1
_PR_SET_PDEATHSIG: Final = 1

_LOGGING: Final = {
    "incremental": True,
    "handlers": {},
    "loggers": {"_granian": {"propagate": True}},
}
"""The logger of granian without a handler of its own: all is in one log and one format."""


class _Granian(Granian):  # type: ignore[misc,valid-type]
    """granian that never gives up once a worker has answered.

    It ends itself, and with it the workers that serve, where one ends twice within 5.5 s, and has
    no option for that. What it calls to replace workers forgets here when it was called last.
    """

    has_answered: Any

    def _respawn_workers(self, workers: list[int], *arguments: Any, delay: float = 0.0) -> None:
        ended = [worker for worker in self.wrks if not worker.is_alive()]
        for index in workers:
            if self.interrupt_signal:
                return
            # A worker that ends as soon as it starts is not started more often than this allows.
            super()._respawn_workers([index], *arguments, delay=max(delay, _RESPAWN_PAUSE))
        if self.has_answered.value:
            self.respawned_wrks.clear()
        # granian forgets one that ends while it takes the list of those that have
        forgotten = {worker.idx for worker in ended if worker in self.wrks}
        self.interrupt_children.extend(forgotten.difference(self.interrupt_children))
        if self.interrupt_children:
            self.main_loop_interrupt.set()

    def shutdown(self, *arguments: Any) -> None:
        try:
            super().shutdown(*arguments)
        except SystemExit:
            # with the status of a failure where workers ended by themselves before they were told
            if not self.interrupt_signal:
                raise


@dataclass
class HttpServer:
    """A parent that watches and replaces worker processes.

    :param listener: a socket that has the address and does not listen: each worker listens on one
        of its own (SO_REUSEPORT).
    :param application: makes the WSGI callable, once in the main thread of each worker.
    :param client_timeout: seconds that a client has to send the head of a request.
    :param tls: the certificate to serve HTTPS with; None serves HTTP.
    :param when_ready: called once, in the first worker that answers.
    :param show_fault: called with what is wrong with the certificate, and with None when that is
        over.
    """

    listener: socket.socket
    application: Callable[[], Turns]
    workers: int
    client_timeout: float
    tls: Certificate | None = None
    when_ready: Callable[[], None] = lambda: None
    show_fault: Callable[[str | None], None] = lambda _fault: None

    def run(self, copies: Path) -> None:
        """Serve until a signal, the certificate from a directory of copies that fit together."""
        # The workers share the memory of what is loaded as long as none of them walks it.
        gc.collect()
        gc.freeze()
        hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
        multiprocessing.set_start_method("fork", force=True)
        # Taken by the first worker that answers, and kept.
        self._first = multiprocessing.Lock()
        # Without a lock, which a worker that is killed would keep.
        self._has_answered = multiprocessing.RawValue("b", 0)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        tls = self.tls.copy(copies) if self.tls else None
        if self.tls and tls:
            renew = partial(os.kill, os.getpid(), signal.SIGHUP)
            watch = CertificateWatch(self.tls, tls, renew, self.show_fault)
            threading.Thread(target=watch.run, daemon=True).start()
        _end_forks_with_this_process()
        self._granian(tls).serve(target_loader=self._load, wrap_loader=False)

    def _granian(self, tls: Certificate | None) -> Any:
        server = _Granian(
            "placement-server",
            *self.listener.getsockname()[:2],
            interface=Interfaces.WSGI,
            http=HTTPModes.http1,
            http1_settings=HTTP1Settings(
                # It also bounds the idle time of a connection that is kept.
                header_read_timeout=round(self.client_timeout * 1000),
                max_buffer_size=_BUFFER_SIZE,
            ),
            workers=self.workers,
            blocking_threads=_THREADS,
            backpressure=_CONNECTIONS,
            respawn_failed_workers=True,
            # seconds that requests get to finish after SIGTERM
            workers_kill_timeout=30,
            log_dictconfig=_LOGGING,
            # What is less is advice on the number of threads.
            log_level=LogLevels.error,
            ssl_cert=tls.path if tls else None,
            ssl_key=tls.key if tls else None,
            ssl_protocol_min=SSLProtocols.tls12,
        )
        server.has_answered = self._has_answered
        server.on_startup(self._on_startup)
        return server

    def _load(self) -> Turns:
        """Make the application of a worker."""
        while True:
            try:
                application = self.application()
                break
            except Exception:
                LOG.exception("A worker cannot start, and tries again in %.0f s.", _PAUSE)
                time.sleep(_PAUSE)
        gc.collect()
        gc.freeze()
        threading.Thread(target=self._announce, daemon=True).start()
        return application

    def _announce(self) -> None:
        """Wait until this worker answers, and report it if it is the first."""
        with socket.socket(self.listener.family) as client:
            while client.connect_ex(self.listener.getsockname()):
                time.sleep(_SHORT_PAUSE)
        self._has_answered.value = 1
        if self._first.acquire(block=False):
            self.when_ready()

    def _on_startup(self) -> None:
        """Change what granian has set up in the parent: its log level, and how it ends."""
        logging.getLogger("_granian").setLevel(logging.INFO)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, partial(self._stop, signal.getsignal(number)))

    def _stop(self, stop: Any, number: int, frame: Any) -> None:
        stop(number, frame)
        if number == signal.SIGINT:
            # a second Ctrl-C ends requests in progress too
            signal.signal(number, lambda *_: _end_workers(BaseProcess.kill))
        signal.signal(log_lines.TRY_AGAIN, lambda *_: None)
        ending = threading.Timer(_SIGNAL_PAUSE, _go_on_ending)
        # it watches the log until the process ends
        ending.daemon = True
        ending.start()


def _go_on_ending() -> None:
    """Do what granian does not: it loses a signal to a worker that starts, and waits for a log."""
    _end_workers(BaseProcess.terminate)
    log_lines.leave_when_stuck(partial(_end_workers, BaseProcess.kill))


def _end_workers(end: Callable[[BaseProcess], None]) -> None:
    for worker in multiprocessing.active_children():
        end(worker)


def _end_forks_with_this_process() -> None:
    """Have the kernel end each worker with its parent, also one that is stopped or busy."""
    libc, parent = ctypes.CDLL(None), os.getpid()

    def begin_life() -> None:
        # The parent's handlers would have a worker that starts keep a signal to itself.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(0)

    os.register_at_fork(after_in_child=begin_life)
