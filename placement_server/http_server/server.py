"""The parent of the worker processes: gunicorn with our settings."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import resource
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from gunicorn.app.base import BaseApplication
from gunicorn.glogging import Logger

from placement_server.http_server.certificates import Certificate
from placement_server.http_server.worker import begin_life

#: Seconds that requests get to finish after SIGTERM.
_GRACE: Final = 30

#: Connections that one worker holds at a time; more wait until one of them is closed.
_CONNECTIONS: Final = 1000


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Limits of the load, and of clients.

    :ivar threads: requests that one worker serves at a time.
    :ivar client_timeout: seconds that a client has to send a request, and again for the answer.
    :ivar max_body_size: the most bytes of a body that are kept for the application.
    :ivar unqueued_paths: paths of requests that do not wait for a thread, such as the health check.
    :ivar metrics_path: the path of the metrics; empty if they are not served.
    """

    workers: int
    threads: int
    client_timeout: float
    max_body_size: int
    unqueued_paths: frozenset[str]
    metrics_path: str


class ServerLog(Logger):  # type: ignore[misc]
    """Gunicorn's log as part of the server's own: one place, one format."""

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        for handler in list(self.error_log.handlers):
            self.error_log.removeHandler(handler)
        self.error_log.propagate = True


class HttpServer(BaseApplication):  # type: ignore[misc]
    """A parent that watches and replaces worker processes; gunicorn's command line is not read."""

    def __init__(
        self,
        listener: socket.socket,
        application: Callable[[], Any],
        limits: ServerLimits,
        *,
        tls: Certificate | None,
        when_ready: Callable[[], None],
        preload: Callable[[], None] = lambda: None,
    ) -> None:
        """Configure gunicorn.

        :param listener: a socket that listens already; the server owns it from now on.
        :param application: makes the WSGI callable, once in each worker.
        :param preload: imports what all workers need; called once, before the first is forked.
        :param tls: the certificate to serve HTTPS with; None serves HTTP.
        :param when_ready: called once, in the first worker that answers.
        """
        self._application = application
        self._preload = preload
        self.limits = limits
        listener.set_inheritable(True)
        self._settings: dict[str, Any] = {
            "bind": [f"fd://{listener.detach()}"],
            "workers": limits.workers,
            "threads": limits.threads,
            "worker_connections": _CONNECTIONS,
            "worker_class": "placement_server.http_server.worker.HttpWorker",
            "graceful_timeout": _GRACE,
            # The other parser answers a Content-Length that is not a number by itself.
            "http_parser": "python",
            "keepalive": 75,
            # The worker has its own limit.
            "limit_request_line": 0,
            "limit_request_field_size": 65_536,
            "logger_class": ServerLog,
            "proc_name": "placement-server",
            "control_socket_disable": True,
            # [oslo_middleware] reads proxy headers, if they are read at all.
            "forwarded_allow_ips": "",
            "secure_scheme_headers": {},
            "on_starting": _end_by_interrupt_as_by_term,
            "post_fork": begin_life,
            "post_worker_init": lambda worker: when_ready() if worker.age == 1 else None,
            "worker_exit": _send_spans,
            "child_exit": _forget_worker,
        }
        if tls is not None:
            self._settings |= {
                "certfile": tls.path,
                "keyfile": tls.key,
                # called for each connection
                "ssl_context": lambda _conf, _make: tls.context(),
            }
        super().__init__()

    def run(self) -> NoReturn:
        """Serve until a signal, and exit with gunicorn's status.

        The exit is immediate: that of the interpreter takes longer than that of an idle server.
        """
        _allow_open_files()
        status: Any = 0
        with _metrics_directory(self.limits.metrics_path):
            self._preload()
            # The workers share the memory of what is loaded as long as none of them walks it.
            gc.collect()
            gc.freeze()
            try:
                super().run()
            except SystemExit as end:
                status = end.code
        logging.shutdown()
        sys.stdout.flush()
        os._exit(status if isinstance(status, int) else 1)

    def load_config(self) -> None:
        for name, value in self._settings.items():
            self.cfg.set(name, value)

    def load(self) -> Any:
        return self._application()


@contextlib.contextmanager
def _metrics_directory(metrics_path: str) -> Iterator[None]:
    """Provide the directory in which the workers' metrics add up, if metrics are served.

    A worker that cannot start leaves this block as well, as it was forked inside of it: only the
    process that made the directory removes it. A signal that ends the server while the application
    is loaded, before gunicorn handles it, removes it as well.
    """
    if not metrics_path:
        yield
        return
    maker = os.getpid()
    directory = tempfile.mkdtemp(prefix="placement-metrics-")
    # Before anything imports the metrics: see placement_server.metrics.
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = directory

    def end(_number: int, _frame: object) -> NoReturn:
        shutil.rmtree(directory, ignore_errors=True)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        if os.getpid() == maker:
            shutil.rmtree(directory, ignore_errors=True)


def _allow_open_files() -> None:
    """Raise the limit of open files as far as needed and allowed: a worker fails beyond it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Connections, bodies kept in files, and connections to the database.
    needed_files = 3 * _CONNECTIONS
    if hard != resource.RLIM_INFINITY:
        needed_files = min(needed_files, hard)
    if soft != resource.RLIM_INFINITY and soft < needed_files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed_files, hard))


def _end_by_interrupt_as_by_term(parent: Any) -> None:
    # A second Ctrl-C ends requests in progress too: the parent listens for one while it waits.
    parent.handle_int = parent.handle_term


def _send_spans(_parent: Any, _worker: Any) -> None:
    # Imported by the application, if it ever came so far.
    telemetry = sys.modules.get("placement_server.middleware.telemetry")
    if telemetry is not None:
        telemetry.send_all()


def _forget_worker(_parent: Any, worker: Any) -> None:
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        from prometheus_client import multiprocess

        multiprocess.mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]
