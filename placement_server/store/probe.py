"""The check for load balancers that the database answers."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final
from urllib.parse import parse_qsl, urlencode

from msgspec.structs import replace
from sqlalchemy import Engine, select
from sqlalchemy.exc import SQLAlchemyError

from placement_server.store import tables
from placement_server.store.engine import create_engines, is_in_memory
from placement_server.store.store import Store

LOG = logging.getLogger(__name__)

PATIENCE: Final = 2.0
"""Seconds that the database has to answer."""

KEPT: Final = 1.0
"""Seconds for which an answer is reused."""

_NO_ANSWER: Final = f"the database did not answer within {PATIENCE:g} seconds"


class DatabaseProbe:
    """A check of the database on a connection of its own, so never behind requests. Thread safe.

    Only one check runs at a time: callers that come meanwhile wait for its result, for as long as
    the database has time to answer.
    """

    def __init__(self, ask: Callable[[], None]) -> None:
        """Prepare a probe.

        :param ask: returns when the database has answered, raises SQLAlchemyError or OSError when
            it has failed, and may also hang.
        """
        self._ask = ask
        self._lock = threading.Lock()
        self._answer: Future[str | None] | None = None
        self._asked_at = self._answered_at = 0.0

    @classmethod
    def of_store(cls, store: Store) -> DatabaseProbe:
        """Return a probe of the store's database.

        A database in memory is this process's own: it always answers.
        """
        if is_in_memory(store.url):
            return cls(lambda: None)
        options = replace(
            store.options,
            connection_parameters=_bounded_parameters(store),
            max_pool_size=1,
            max_overflow=0,
        )
        engine = create_engines(store.url, options).reader
        return cls(lambda: _read_a_row(engine))

    def failure(self) -> str | None:
        """Return why the database cannot be used; `None` when it can, as of a second ago."""
        with self._lock:
            now, answer = time.monotonic(), self._answer
            if answer is None or (answer.done() and now - self._answered_at >= KEPT):
                answer, self._asked_at = Future(), now
                self._answer = answer
                threading.Thread(
                    target=self._run, args=(answer,), name="database-probe", daemon=True
                ).start()
            seconds = max(self._asked_at + PATIENCE - now, 0)
        try:
            return answer.result(seconds)
        except TimeoutError:
            return _NO_ANSWER

    def _run(self, answer: Future[str | None]) -> None:
        failure = None
        try:
            self._ask()
        except (SQLAlchemyError, OSError) as error:
            failure = "the database cannot be used"
            LOG.warning("The health check reports 503, because the database failed: %s", error)
        self._answered_at = time.monotonic()
        answer.set_result(failure)


def _read_a_row(engine: Engine) -> None:
    try:
        with engine.connect() as connection:
            connection.execute(select(tables.resource_classes.c.id).limit(1)).all()
            connection.rollback()
    except BaseException:
        # The next check uses a new connection.
        engine.dispose()
        raise


def _bounded_parameters(store: Store) -> str:
    """Return connection parameters with which the connection ends when the database's host is gone.

    The connection to a database that is only stopped stays, and the answer comes when it goes on.
    """
    seconds = str(int(PATIENCE))
    mysql = {"connect_timeout": seconds, "read_timeout": seconds, "write_timeout": seconds}
    bounds = {
        "postgresql": {"connect_timeout": seconds, "tcp_user_timeout": f"{seconds}000"},
        "mysql": mysql,
        "mariadb": mysql,
    }.get(store.engine.dialect.name, {})
    parameters = parse_qsl(store.options.connection_parameters, keep_blank_values=True)
    return urlencode({**dict(parameters), **bounds})
