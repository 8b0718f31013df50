"""Frequent statements of PostgreSQL, executed by libpq as psycopg hands it out.

A cursor of psycopg composes each execution again: of a read this is a sixth of the server's CPU,
and of a claim a seventh. What is prepared here is executed by one call of `psycopg.pq`, and so are
BEGIN before it and COMMIT; values go through psycopg's own adaptation, and errors are psycopg's.
Without this module all goes through cursors, as what is not prepared here does.

psycopg deallocates all prepared statements of a connection after a ROLLBACK, if it has prepared
some itself. Here they are kept, unless a statement failed: perhaps they are lost, as behind a pool
of connections outside, or a column has another type now. Outside of a transaction a cursor executes
such a statement instead, and within one the transaction is retried (`26000` and `0A000` in
`placement_server.store.connection.failures`).
"""

from __future__ import annotations

import re
import secrets
from itertools import count
from typing import Any, Final

import psycopg
from psycopg import IsolationLevel, abc, pq
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import FeatureNotSupported, InvalidSqlStatementName, error_from_result

UNUSABLE: Final = (InvalidSqlStatementName, FeatureNotSupported)
"""Errors of a prepared statement that is lost, or whose columns have other types now."""

_MOST: Final = 100
"""Statements of a connection that are prepared; psycopg itself prepares as many."""

_COUNTED: Final = 1000
"""Statements whose uses are counted, before all are counted anew."""

_PLACE: Final = re.compile(r"%s|%\((\w+)\)s")
"""The place of a value; its name, where values come by name."""

# Made once: an enumeration takes its time.
_IDLE: Final = int(pq.TransactionStatus.IDLE)
_IN_TRANSACTION: Final = int(pq.TransactionStatus.INTRANS)
_FAILED: Final = int(pq.TransactionStatus.INERROR)
_DONE: Final = frozenset({int(pq.ExecStatus.COMMAND_OK), int(pq.ExecStatus.TUPLES_OK)})


class PreparedStatement:
    """A statement that a connection has prepared; for its result it is like a cursor.

    :ivar names: those of its values in their order; none where they come without names.
    :ivar types: those of the values that it takes.
    """

    __slots__ = ("_knows_columns", "formats", "name", "names", "result", "transformer", "types")

    def __init__(
        self,
        name: bytes,
        names: list[str],
        transformer: abc.Transformer,
        formats: list[PyFormat],
    ) -> None:
        self.name = name
        self.names = names
        self.transformer = transformer
        self.types = transformer.types
        self.formats = formats
        self.result: pq.abc.PGresult | None = None
        self._knows_columns = False

    @property
    def rowcount(self) -> int:
        """How many rows were changed."""
        assert self.result is not None
        return self.result.command_tuples or 0

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return the rows, and keep no copy."""
        result, self.result = self.result, None
        assert result is not None
        transformer = self.transformer
        transformer.set_pgresult(result, set_loaders=not self._knows_columns)
        self._knows_columns = True
        rows = transformer.load_rows(0, result.ntuples, tuple)
        transformer.set_pgresult(None, set_loaders=False)
        return rows


class QuickConnection(psycopg.Connection[Any]):
    """A connection that ends transactions by one call, as `PreparedStatements` begin them.

    :ivar statements: those that are executed without a cursor.
    """

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.statements = PreparedStatements(self)

    def commit(self) -> None:
        """Commit the transaction, if there is one.

        :raises psycopg.Error: the database refused it.
        """
        with self.lock:
            if self.pgconn.transaction_status == _IDLE:
                return
            try:
                _run(self, b"COMMIT")
            except psycopg.Error:
                # SQLAlchemy takes the transaction for ended, but one cancelled too early has not
                if self.pgconn.transaction_status == _FAILED:
                    _run(self, b"ROLLBACK")
                raise

    def rollback(self) -> None:
        """Roll back the transaction, if there is one; if it failed, prepare all again.

        :raises psycopg.Error: the connection broke.
        """
        status = self.pgconn.transaction_status
        if status == _IN_TRANSACTION:
            with self.lock:
                _run(self, b"ROLLBACK")
            return
        super().rollback()
        if status == _FAILED:
            self.statements.forget()
            with self.lock:
                # psycopg has forgotten its own, and does this only if there were some
                _run(self, b"DEALLOCATE ALL")


class PreparedStatements:
    """The statements that one connection has prepared. As little thread safe as a cursor."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._pgconn = connection.pgconn
        self._statements: dict[str, PreparedStatement] = {}
        self._uses: dict[str, int] = {}
        # A pool of connections outside may mix the statements of its clients, and psycopg's names
        # begin with zero for each.
        first = secrets.randbits(62)
        self._numbers = count(first)
        connection._prepared._prepared_idx = first
        self._level: IsolationLevel | None = None
        self._begin = b"BEGIN"

    def execute(self, statement: str, values: Any) -> PreparedStatement | None:
        """Execute a statement that is prepared; None where a cursor is to execute it.

        The first statement of a transaction begins it, as it does with a cursor.

        :raises psycopg.Error: the database refused it.
        """
        prepared = self._statements.get(statement)
        if prepared is None:
            self._prepare_when_frequent(statement, values)
            return None
        pgconn, transformer = self._pgconn, prepared.transformer
        status = pgconn.transaction_status
        if status != _IDLE and status != _IN_TRANSACTION:
            return None
        if prepared.names:
            values = [values[name] for name in prepared.names]
        parameters: Any = transformer.dump_sequence(values, prepared.formats)
        if transformer.types != prepared.types:
            return None
        begins = status == _IDLE and not self._connection.autocommit
        if begins:
            self._begin_transaction()
        result = pgconn.exec_prepared(prepared.name, parameters, transformer.formats)
        if result.status not in _DONE:
            error = _error(self._connection, result)
            if isinstance(error, UNUSABLE):
                self.forget()
                if status == _IDLE:
                    if begins:
                        # nothing was done in it, and a cursor begins another one
                        _run(self._connection, b"ROLLBACK")
                    return None
            raise error
        prepared.result = result
        return prepared

    def forget(self) -> None:
        """Take all statements for lost; they are prepared once they are frequent again."""
        self._statements.clear()
        self._uses.clear()

    def _prepare_when_frequent(self, statement: str, values: Any) -> None:
        """Prepare a statement once it was used as often as psycopg waits for that."""
        threshold = self._connection.prepare_threshold
        if threshold is None or len(self._statements) >= _MOST or "%%" in statement:
            return
        if len(self._uses) >= _COUNTED:
            self._uses.clear()
        uses = self._uses[statement] = self._uses.get(statement, 0) + 1
        if uses < threshold:
            return
        names = [name for name in _PLACE.findall(statement) if name]
        values = [values[name] for name in names] if names else values
        transformer: abc.Transformer = Transformer(self._connection)
        formats = [PyFormat.AUTO] * len(values)
        transformer.dump_sequence(values, formats)
        numbers = count(1)
        text = _PLACE.sub(lambda _: f"${next(numbers)}", statement)
        name = b"frequent_%d" % next(self._numbers)
        result = self._pgconn.prepare(name, text.encode(), transformer.types)
        if result.status not in _DONE:
            raise _error(self._connection, result)
        self._statements[statement] = PreparedStatement(name, names, transformer, formats)

    def _begin_transaction(self) -> None:
        """Begin a transaction as psycopg does: by the level of the connection."""
        level = self._connection.isolation_level
        if level is not self._level:
            self._level = level
            name = f" ISOLATION LEVEL {level.name.replace('_', ' ')}" if level else ""
            self._begin = f"BEGIN{name}".encode()
        _run(self._connection, self._begin)


def _run(connection: psycopg.Connection[Any], command: bytes) -> None:
    result = connection.pgconn.exec_(command)
    if result.status not in _DONE:
        raise _error(connection, result)


def _error(connection: psycopg.Connection[Any], result: pq.abc.PGresult) -> psycopg.Error:
    return error_from_result(result, encoding=connection.info.encoding)
