"""Behaviour of gunicorn that the embedded HTTP server relies on beyond its documentation.

A failure here says that a new gunicorn works in another way: read placement_server/http_server with
it before the tests of behaviour are believed.
"""

import inspect
import queue
import re
import signal
import socket
from collections.abc import Callable
from typing import Any

import pytest
from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.config import Config
from gunicorn.http import errors
from gunicorn.http.body import Body, LengthReader
from gunicorn.http.message import Request
from gunicorn.http.parser import RequestParser
from gunicorn.http.unreader import SocketUnreader
from gunicorn.workers.gthread import TConn, ThreadWorker

from placement_server.http_server.refusals import refusal
from placement_server.http_server.server import ServerLog


def parameters(function: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(function).parameters)


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        (ThreadWorker.init_process, ["self"]),
        (ThreadWorker.get_thread_pool, ["self"]),
        (ThreadWorker.load_wsgi, ["self"]),
        (ThreadWorker.run, ["self"]),
        (ThreadWorker.notify, ["self"]),
        (ThreadWorker.accept, ["self", "listener"]),
        (ThreadWorker.enqueue_req, ["self", "conn"]),
        (ThreadWorker.finish_request, ["self", "conn", "fs"]),
        (ThreadWorker.set_accept_enabled, ["self", "enabled"]),
        (ThreadWorker.handle, ["self", "conn"]),
        (ThreadWorker.handle_request, ["self", "req", "conn"]),
        (ThreadWorker._keepalive_after, ["self", "conn", "keepalive"]),
        (ThreadWorker.handle_error, ["self", "req", "client", "addr", "exc"]),
        (ThreadWorker.handle_exit, ["self", "sig", "frame"]),
        (ThreadWorker.handle_quit, ["self", "sig", "frame"]),
        (Request.parse, ["self", "unreader"]),
        (Request.set_body_reader, ["self"]),
        (Request.read_line, ["self", "unreader", "buf", "limit"]),
        (Request.force_close, ["self"]),
        (LengthReader, ["unreader", "length"]),
        (Body, ["reader"]),
        (TConn.close, ["self", "graceful"]),
        (Arbiter.handle_term, ["self"]),
        (Arbiter.handle_int, ["self"]),
        (BaseApplication.load_config, ["self"]),
    ],
    ids=lambda value: getattr(value, "__qualname__", ""),
)
def test_what_is_overridden_or_called_takes_what_it_took(
    method: Callable[..., Any], arguments: list[str]
) -> None:
    assert parameters(method) == arguments


def test_a_connection_has_its_socket_its_parser_and_whether_it_was_waited_for() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        connection = TConn(Config(), ours, ("192.0.2.1", 1), ("192.0.2.2", 2))
        assert connection.sock is ours
        assert connection.client == ("192.0.2.1", 1)
        assert connection.parser is None
        assert connection.data_ready is False
        connection.init()
        assert isinstance(connection.parser, RequestParser)
        assert isinstance(connection.parser.unreader, SocketUnreader)
        assert connection.parser.unreader.buf.getvalue() == b""
        # Its closing is replaced once it is closed.
        connection.close = print


def test_the_class_of_requests_is_the_parsers() -> None:
    assert RequestParser.mesg_class is not None
    assert issubclass(RequestParser.mesg_class, Request)


def test_a_worker_has_what_is_read_of_it() -> None:
    source = inspect.getsource(ThreadWorker) + inspect.getsource(ThreadWorker.__mro__[1])
    for name in ("nr_conns", "worker_connections", "sockets", "alive", "booted", "ppid"):
        assert f"self.{name} = " in source, name
    # The loop that ends a worker waits for its connections, and nothing else. Those that gunicorn
    # keeps, which the oldest version subtracts, there are none of.
    source = inspect.getsource(ThreadWorker.run)
    assert re.search(r"while self\.nr_conns( - len\(self\.keepalived_conns\))? > 0:", source)


def test_the_parent_keeps_signals_in_a_queue_and_finds_its_handlers_by_name() -> None:
    arbiter = Arbiter(BaseApplication.__new__(_Application))
    assert isinstance(arbiter.SIG_QUEUE, queue.SimpleQueue)
    arbiter.signal(signal.SIGTERM, None)
    assert arbiter.SIG_QUEUE.get_nowait() == signal.SIGTERM
    assert 'getattr(self, "handle_%s" % signame, None)' in inspect.getsource(Arbiter.run)


class _Application(BaseApplication):  # type: ignore[misc]
    """Just enough for a parent that is not started."""

    cfg = Config()


@pytest.mark.parametrize(
    "setting",
    [
        *("bind", "workers", "threads", "worker_connections", "worker_class", "graceful_timeout"),
        *("http_parser", "keepalive", "limit_request_line", "limit_request_field_size"),
        *("proc_name", "control_socket_disable", "forwarded_allow_ips", "secure_scheme_headers"),
        *("on_starting", "post_fork", "post_worker_init", "child_exit", "certfile", "keyfile"),
    ],
)
def test_the_settings_exist(setting: str) -> None:
    assert setting in Config().settings


@pytest.mark.parametrize(
    "kind",
    [
        kind
        for kind in vars(errors).values()
        if inspect.isclass(kind) and issubclass(kind, errors.ParseException)
    ],
    ids=lambda kind: kind.__name__,
)
def test_every_error_of_gunicorn_has_an_answer_that_quotes_nothing(kind: type[Exception]) -> None:
    error = kind.__new__(kind)
    error.args = ("secret",)
    refused = refusal(error)
    assert 400 <= refused.status <= 501
    assert b"secret" not in refused.answer


def test_lines_of_gunicorn_are_part_of_the_servers_log(caplog: pytest.LogCaptureFixture) -> None:
    config = Config()
    log = ServerLog(config)
    log.info("Handling signal: %s", "term")
    assert log.error_log.handlers == []
    assert "Handling signal: term" in caplog.text
