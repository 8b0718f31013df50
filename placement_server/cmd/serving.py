"""placement-server serve: a server from its checks at the start to its end.

The HTTP server is granian with worker processes of many threads each;
docs/understand/http-server.md gives the reasons. The configuration and the database are checked
before any worker starts, and what is wrong is reported in one sentence.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import importlib
import logging
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

from oslo_config import cfg
from oslo_log import log

from compute_agent.programs import log_lines
from compute_agent.programs.exit_status import Exit
from compute_agent.programs.module_loading import without_collections
from compute_agent.programs.systemd import ServiceManager
from placement_server import __version__
from placement_server.conf import InvalidConfiguration, new_config, warn_of_useless
from placement_server.heap import share_one_heap
from placement_server.http_server.certificates import Certificate
from placement_server.http_server.server import HttpServer
from placement_server.http_server.turns import Turns
from placement_server.middleware import keystone
from placement_server.policies.enforcer import SECONDS_BETWEEN_SEARCHES, Enforcer, warn_of_file
from placement_server.store.connection.url import shown_url
from placement_server.store.engine import is_in_memory
from placement_server.store.errors import StoreError
from placement_server.store.store import Store

LOG = log.getLogger(__name__)

_NO_DATABASE: Final = (
    "No database is configured. Name one in a configuration file\n"
    "    [placement_database]\n"
    "    connection = postgresql+psycopg://placement:secret@db.example.org/placement\n"
    "and give the file with --config-file, or give the URL with --database-url. To try the server "
    "on this machine alone:\n"
    "    placement-server serve --database-url sqlite:////tmp/placement.db --sync-database "
    "--auth-strategy noauth2"
)


class CannotServe(Exception):
    """A start that failed. The text names the reason and what to do."""


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal.

    :returns: the exit status: 0 after a graceful stop, 1 when the server cannot start.
    """
    try:
        _serve(arguments)
    except (CannotServe, InvalidConfiguration, StoreError) as error:
        print(f"placement-server: {error}", file=sys.stderr)
        return Exit.FAILED
    return Exit.FINE


def _serve(arguments: argparse.Namespace) -> None:
    # until there are workers to replace; it would end the process
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    tls = _tls(arguments)
    conf, rules = _configuration(arguments)
    log_lines.set_up(conf, "placement", InvalidConfiguration)
    # a line for each of its own parts, at every change of the schema
    log.getLogger("alembic.runtime.plugins").logger.setLevel(log.WARNING)
    LOG.info(
        "placement-server %s starts: %d workers of %d threads, database %s, authentication %s",
        __version__,
        arguments.workers,
        arguments.threads,
        shown_url(conf.placement_database.connection),
        conf.api.auth_strategy,
    )
    warn_of_useless(conf)
    warn_of_file(conf)
    # once, before the workers would do it all at once
    with contextlib.closing(Store.from_conf(conf)) as store:
        store.synchronise_standard_names()
    conf.set_override("sync_on_startup", False, group="placement_database")
    if conf.api.auth_strategy == "keystone":
        keystone.check_at_start(conf)
    listener = _listen(arguments.host, arguments.port)
    host = f"[{arguments.host}]" if ":" in arguments.host else arguments.host
    address = f"{'https' if tls else 'http'}://{host}:{listener.getsockname()[1]}"
    line = _StatusLine(address)
    server = HttpServer(
        listener,
        lambda: _application(conf, rules, arguments.threads),
        workers=arguments.workers,
        client_timeout=conf.placement_server.client_timeout,
        tls=tls,
        when_ready=lambda: _announce(address, line),
        show_fault=partial(line.show, "certificate"),
    )
    _end(_run(server, rules, line, has_metrics=bool(conf.placement_server.metrics_path)))


class _StatusLine:
    """The line of `systemctl status`: the address, and what is wrong with files.

    The first worker that answers has what was wrong when it started.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._faults: dict[str, str | None] = {}

    def __str__(self) -> str:
        return "; ".join([f"listening on {self._address}", *filter(None, self._faults.values())])

    def show(self, file: str, fault: str | None) -> None:
        """Show what is wrong with a file; None: nothing any more."""
        self._faults[file] = fault
        ServiceManager().status(str(self))


def _run(server: HttpServer, rules: Enforcer, line: _StatusLine, *, has_metrics: bool) -> int:
    """Run the server and return its exit status."""
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: sys.exit())
        with contextlib.ExitStack() as stack:
            directory = ""
            if has_metrics or server.tls:
                directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="placement-"))
            if has_metrics:
                # in which the metrics of the workers add up; before anything imports them
                os.environ["PROMETHEUS_MULTIPROC_DIR"] = directory
            # not at the top: the metrics look for their directory when they are imported
            with without_collections():
                importlib.import_module("placement_server.app")
            # before the thread: a fork in a write of metrics would leave its lock to the worker
            state = _show(rules, line, None)
            threading.Thread(target=_follow, args=(rules, line, state), daemon=True).start()
            server.run(Path(directory))
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def _end(status: int) -> NoReturn:
    """Exit at once: the end of the interpreter takes longer than that of an idle server."""
    logging.shutdown()
    sys.stdout.flush()
    os._exit(status)


def _follow(rules: Enforcer, line: _StatusLine, state: tuple[str | None, bool]) -> None:
    """Follow the policy file, without end, for new workers where it breaks, and to show it."""
    while True:
        time.sleep(SECONDS_BETWEEN_SEARCHES)
        state = _show(rules, line, state)


def _show(
    rules: Enforcer, line: _StatusLine, shown_state: tuple[str | None, bool] | None
) -> tuple[str | None, bool]:
    """Show whether the policy file can be used, if that has changed; return it."""
    from placement_server.metrics import metrics

    file, is_read = rules.file, rules.follow()
    if file is not None and (file, is_read) != shown_state:
        metrics.CONFIGURATION_READ.labels(file).set(int(is_read))
        if shown_state is not None or not is_read:
            fault = f"the policy file {file} cannot be used, and the rules before it are in force"
            line.show("policy", None if is_read else fault)
    return file, is_read


def _application(conf: cfg.ConfigOpts, rules: Enforcer, threads: int) -> Turns:
    from placement_server.app import build_app

    share_one_heap()
    own = conf.placement_server
    application = build_app(conf, former_rules=rules)
    return Turns(application, threads, own.max_body_size, own.healthcheck_path)


def _announce(address: str, line: _StatusLine) -> None:
    # In one write, also without a buffer: print() writes the end of a line apart, and what another
    # worker logs came between.
    sys.stdout.write(f"placement-server: listening on {address}\n")
    sys.stdout.flush()
    LOG.info("Listening on %s", address)
    ServiceManager().ready(str(line))


def _tls(arguments: argparse.Namespace) -> Certificate | None:
    if not arguments.tls_cert and not arguments.tls_key:
        return None
    if not arguments.tls_cert or not arguments.tls_key:
        raise CannotServe("--tls-cert and --tls-key go together: give both or neither.")
    for option in ("tls_cert", "tls_key"):
        path = getattr(arguments, option)
        if not os.access(path, os.R_OK):
            raise CannotServe(
                f"The file {path} of --{option.replace('_', '-')} cannot be read. Correct the "
                "path or its permissions."
            )
    certificate = Certificate(Path(arguments.tls_cert), Path(arguments.tls_key))
    try:
        certificate.check()
    except OSError as error:
        raise CannotServe(
            f"The certificate {arguments.tls_cert} of --tls-cert and the key {arguments.tls_key} "
            f"of --tls-key cannot be used together: {error}."
        ) from error
    return certificate


def _configuration(arguments: argparse.Namespace) -> tuple[cfg.ConfigOpts, Enforcer]:
    """Return the options, and the rules of the policy at the start."""
    directories = [f"--config-dir={directory}" for directory in arguments.config_dir]
    for file in arguments.config_file:
        if not Path(file).is_file():
            raise CannotServe(f"The configuration file {file} does not exist or is not a file.")
    conf = new_config(directories, arguments.config_file or None)
    if arguments.database_url:
        conf.set_override("connection", arguments.database_url, group="placement_database")
    if arguments.sync_database:
        conf.set_override("sync_on_startup", True, group="placement_database")
    if arguments.auth_strategy:
        conf.set_override("auth_strategy", arguments.auth_strategy, group="api")
    try:
        return conf, _check(conf, arguments)
    except (CannotServe, InvalidConfiguration):
        # often the cause; without a log it goes to stderr
        warn_of_useless(conf)
        raise


def _check(conf: cfg.ConfigOpts, arguments: argparse.Namespace) -> Enforcer:
    """Check what can be checked without the database, here and not once more in every worker."""
    if not conf.placement_database.connection:
        raise CannotServe(_NO_DATABASE)
    if arguments.workers > 1 and is_in_memory(conf.placement_database.connection):
        raise CannotServe(
            f"A database in memory belongs to one process, so {arguments.workers} workers would "
            "have one each: add --workers 1, or name a file, as in sqlite:////tmp/placement.db."
        )
    rules = Enforcer(conf)
    if conf.api.auth_strategy == "keystone":
        keystone.check_credentials(conf)
    return rules


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except socket.gaierror as error:
        raise CannotServe(
            f"The host name {host} of --host cannot be resolved: {error.strerror}. Give an "
            "address of this machine."
        ) from error
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise CannotServe(
                f"Port {port} of {host} is in use by another process. Stop that process, or choose "
                "another port with --port (0 takes any free one)."
            ) from error
        raise CannotServe(
            f"Cannot listen on {host} port {port}: {error.strerror}. Give another address with "
            "--host, or another port with --port."
        ) from error
    return listener
