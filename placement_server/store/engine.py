"""Engines of one database: one for reads, one for writes; and a connection kept out of its pool.

Isolation levels (docs/understand/database.md says why):

    =========== ======================== =================
    database    reads                    writes
    =========== ======================== =================
    SQLite      WAL snapshot             BEGIN IMMEDIATE
    PostgreSQL  REPEATABLE READ          READ COMMITTED
    MySQL       REPEATABLE READ          READ COMMITTED
    =========== ======================== =================
"""

from __future__ import annotations

import logging
import math
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, TypeVar

import tenacity
from msgspec import Struct
from sqlalchemy import URL, Connection, Engine, ExceptionContext, create_engine, event
from sqlalchemy.exc import NoSuchModuleError
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool, StaticPool

from placement_server.store.connection.options import StoreOptions
from placement_server.store.connection.url import (
    connect_arguments,
    database_url,
    log_driver,
    missing_driver,
)
from placement_server.store.dialects import plain
from placement_server.store.errors import StoreUnavailable

LOG = logging.getLogger(__name__)


class Engines(Struct, frozen=True):
    """The engines of one database.

    :ivar in_memory: there is only one connection, whose users must take turns.
    :ivar single: for statements that need no transaction around them, if leaving it out saves
        round trips.
    """

    reader: Engine
    writer: Engine
    in_memory: bool
    single: Engine | None = None

    def dispose(self) -> None:
        self.reader.dispose()
        self.writer.dispose()
        if self.single is not None:
            self.single.dispose()


def is_in_memory(connection: str | URL) -> bool:
    """Return whether the database lives in the memory of the process that opens it."""
    url = database_url(connection)
    return url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:")


def create_engines(connection: str, options: StoreOptions) -> Engines:
    """Return engines for the database at `connection`, without connecting."""
    url = database_url(connection, options.connection_parameters)
    log_driver(connection, url)
    backend = url.get_backend_name()
    settings = _settings(options)
    try:
        if backend == "sqlite":
            return _sqlite_engines(url, options, settings)
        levels = ["REPEATABLE READ", "READ COMMITTED"]
        if backend == "postgresql":
            levels.append("AUTOCOMMIT")
        url, arguments = connect_arguments(url)
        engines = [
            create_engine(url, isolation_level=level, connect_args=arguments, **settings)
            for level in levels
        ]
    except ImportError as error:
        raise missing_driver(url, error) from error
    except NoSuchModuleError as error:
        raise StoreUnavailable(
            f"SQLAlchemy cannot load a plugin that [placement_database]connection names: {error}. "
            "Install it, or correct the URL."
        ) from error
    for engine in engines:
        if options.connection_trace:
            _trace(engine)
        if backend == "postgresql":
            _prepare_postgresql(engine, options, writes=engine is engines[1])
        else:
            _prepare_mysql(engine, options, writes=engine is engines[1])
    reader, writer, *single = engines
    return Engines(reader, writer, in_memory=False, single=single[0] if single else None)


def _settings(options: StoreOptions) -> dict[str, Any]:
    echo = _echo(options.connection_debug)
    settings: dict[str, Any] = {
        "pool_recycle": options.connection_recycle_time,
        # every transaction ends explicitly, a second ROLLBACK would be a wasted round trip
        "pool_reset_on_return": None,
        "echo": echo,
        "execution_options": {plain.OPTION: not echo},
    }
    limits = {
        "pool_size": options.max_pool_size,
        "max_overflow": options.max_overflow,
        "pool_timeout": options.pool_timeout,
    }
    return settings | {name: limit for name, limit in limits.items() if limit is not None}


def _echo(connection_debug: int) -> bool | Literal["debug"]:
    """Return what SQLAlchemy logs: statements from 50 on, results too at 100."""
    return "debug" if connection_debug >= 100 else connection_debug >= 50


def _sqlite_engines(url: URL, options: StoreOptions, settings: dict[str, Any]) -> Engines:
    in_memory = is_in_memory(url)
    connect_args = {"timeout": options.lock_timeout, "check_same_thread": False}
    if in_memory:
        engine = create_engine(url, connect_args=connect_args, poolclass=StaticPool)
    else:
        engine = create_engine(url, connect_args=connect_args, **settings)

    if options.connection_trace:
        _trace(engine)

    @event.listens_for(engine, "connect")
    def on_connect(dbapi_connection: Any, _record: object) -> None:
        # the driver would begin transactions by itself, and never with BEGIN IMMEDIATE
        dbapi_connection.isolation_level = None
        cursor = dbapi_connection.cursor()
        _keep_write_ahead_log(cursor, options.lock_timeout)
        mode = "FULL" if options.sqlite_synchronous else "OFF"
        cursor.execute(f"PRAGMA synchronous = {mode}")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def on_begin(connection: Connection) -> None:
        begin = connection.get_execution_options().get("store_begin", "BEGIN")
        if begin:
            connection.exec_driver_sql(begin)

    return Engines(
        reader=engine,
        writer=engine.execution_options(store_begin="BEGIN IMMEDIATE"),
        in_memory=in_memory,
        single=None if in_memory else engine.execution_options(store_begin=None),
    )


def _keep_write_ahead_log(cursor: sqlite3.Cursor, lock_timeout: float) -> None:
    """Set the journal mode that lets readers and a writer work at the same time.

    SQLite calls no busy handler when a writer of a new database is in the way of the change, so
    the wait for it is here.

    :raises sqlite3.OperationalError: the database stayed locked for `lock_timeout` seconds.
    """
    tenacity.Retrying(
        retry=tenacity.retry_if_exception(_is_busy),
        stop=tenacity.stop_after_delay(lock_timeout),
        wait=tenacity.wait_random(0.005, 0.05),
        reraise=True,
    )(cursor.execute, "PRAGMA journal_mode = WAL")


def _is_busy(error: BaseException) -> bool:
    code: int = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code == sqlite3.SQLITE_BUSY


def _trace(engine: Engine) -> None:
    """Add a comment with the function of the store to each statement."""

    @event.listens_for(engine, "before_cursor_execute", retval=True)
    def on_execute(
        connection: Connection,
        _cursor: object,
        statement: str,
        parameters: Any,
        _context: object,
        _executemany: bool,
    ) -> tuple[str, Any]:
        doing = connection.info.get("store_function")
        return (f"{statement} -- {doing}" if doing else statement), parameters


def _prepare_postgresql(engine: Engine, options: StoreOptions, *, writes: bool) -> None:
    from psycopg import OperationalError
    from psycopg.types.numeric import Int8Dumper

    from placement_server.store.dialects.prepared import UNUSABLE, QuickConnection

    settings = {
        "lock_timeout": options.lock_timeout,
        "statement_timeout": options.statement_timeout,
    }
    if writes:
        # a worker that stopped must not keep its locks, nor commit when no client waits any more
        settings["idle_in_transaction_session_timeout"] = options.write_idle_timeout
    statement = "; ".join(
        f"SET {name} = {math.ceil(seconds * 1000)}" for name, seconds in settings.items()
    )

    @event.listens_for(engine, "do_connect")
    def on_do_connect(
        _dialect: object, _record: object, arguments: Sequence[Any], keywords: dict[str, Any]
    ) -> Any:
        # to wait for the database takes a descriptor, for which the driver has no error of its own
        try:
            return QuickConnection.connect(*arguments, **keywords)
        except OSError as error:
            raise OperationalError(str(error)) from error

    @event.listens_for(engine, "connect")
    def on_connect(dbapi_connection: Any, record: ConnectionPoolEntry) -> None:
        # one type for all numbers: a prepared statement serves only the types it was made for
        dbapi_connection.adapters.register_dumper(int, Int8Dumper)
        if not options.is_interruptible:
            # Ctrl-C ends no call of libpq, only one of psycopg
            record.info[plain.PREPARED] = dbapi_connection.statements
        cursor = dbapi_connection.cursor()
        cursor.execute(statement)
        cursor.close()
        dbapi_connection.commit()

    @event.listens_for(engine, "handle_error")
    def on_error(context: ExceptionContext) -> None:
        # psycopg takes what it prepared for lost after a ROLLBACK only, and there may be none
        if isinstance(context.original_exception, UNUSABLE):
            context.is_disconnect = True
            context.invalidate_pool_on_disconnect = False


def _prepare_mysql(engine: Engine, options: StoreOptions, *, writes: bool) -> None:
    settings: dict[str, object] = {
        "sql_mode": options.mysql_sql_mode,
        "innodb_lock_wait_timeout": max(1, int(options.lock_timeout)),
    }
    if options.mysql_wsrep_sync_wait is not None:
        settings["wsrep_sync_wait"] = options.mysql_wsrep_sync_wait

    @event.listens_for(engine, "connect")
    def on_connect(dbapi_connection: Any, _record: object) -> None:
        # Here, as the dialect knows the kind of server only after the first connection. MySQL has
        # no limit of idle transactions.
        variables = dict(settings)
        if not getattr(engine.dialect, "is_mariadb", False):
            variables["max_execution_time"] = math.ceil(options.statement_timeout * 1000)
        else:
            variables["max_statement_time"] = options.statement_timeout
            if writes:
                variables["idle_write_transaction_timeout"] = max(
                    1, int(options.write_idle_timeout)
                )
        assignments = ", ".join(f"{name} = %s" for name in variables)
        cursor = dbapi_connection.cursor()
        cursor.execute(f"SET SESSION {assignments}", tuple(variables.values()))
        cursor.close()


KEPT_FOR: Final = 10.0
"""Seconds after which the connection returns to its pool, which may replace it."""

_Result = TypeVar("_Result")


def connection_limit(pool: QueuePool) -> int | None:
    """Return the maximum number of connections of a pool; None: there is no limit."""
    # SQLAlchemy shows all of a pool but this
    overflow = pool._max_overflow
    return None if overflow < 0 else pool.size() + overflow


class KeptConnection:
    """One connection that is used by one caller after the other. Thread safe.

    To take a connection out of its pool and to return it costs more than a frequent statement
    does: on SQLite a read by id takes 37 % more CPU that way, and a search of a few hosts 12 %. A
    caller who comes while it is in use gets another one from the pool. It is not kept while it is
    the last one of the pool, for which other callers may wait.
    """

    def __init__(self, engine: Engine, recycle_time: float) -> None:
        """Keep nothing yet.

        :param recycle_time: seconds after which the pool replaces a connection; -1 for never.
        """
        self._engine = engine
        self._kept_for = KEPT_FOR if recycle_time < 0 else min(KEPT_FOR, recycle_time)
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._kept_until = 0.0

    def run(self, work: Callable[[Connection], _Result]) -> _Result:
        """Return what `work` does with a connection."""
        if not self._lock.acquire(blocking=False):
            with self._engine.connect() as connection:
                return work(connection)
        try:
            connection = self._current_connection()
            try:
                result = work(connection)
            except BaseException:
                self._return_to_pool()
                raise
            if connection.invalidated or not self._pool_has_more():
                self._return_to_pool()
            return result
        finally:
            self._lock.release()

    def close(self) -> None:
        """Return the connection to its pool, unless it is in use. Idempotent."""
        if self._lock.acquire(blocking=False):
            try:
                self._return_to_pool()
            finally:
                self._lock.release()

    def _current_connection(self) -> Connection:
        now = time.monotonic()
        if self._connection is None or now >= self._kept_until:
            self._return_to_pool()
            self._connection = self._engine.connect()
            self._kept_until = now + self._kept_for
        return self._connection

    def _pool_has_more(self) -> bool:
        pool = self._engine.pool
        if not isinstance(pool, QueuePool):
            return False
        limit = connection_limit(pool)
        return limit is None or pool.checkedout() < limit

    def _return_to_pool(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
