"""Statements executed by the driver alone, for those that are made all the time.

SQLAlchemy makes a context, a result and its description for each statement, which takes several
times as long as the driver and a near database do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter, methodcaller
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from sqlalchemy import Connection, DateTime, Dialect, Select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.compiler import SQLCompiler

OPTION: Final = "store_plain"
"""The execution option of engines that may be passed by: SQLAlchemy logs nothing of them."""

_CURSOR: Final = "store_cursor"
"""Where a pooled connection keeps the cursor of these statements; a new one costs a third of its
use."""

PREPARED: Final = "store_prepared"
"""Where a pooled connection keeps statements that are executed without a cursor, if any are."""

Parameters: TypeAlias = "tuple[Any, ...] | dict[str, Any]"

_Result = TypeVar("_Result")

_FETCHED_ROWS: Final[Callable[[Any], Sequence[Any]]] = methodcaller("fetchall")
_ROW_COUNT: Final[Callable[[Any], int]] = attrgetter("rowcount")


def rows(connection: Connection, statement: str, parameters: Parameters) -> Sequence[Any]:
    """Execute a statement in the words of the driver, and return its rows.

    :raises sqlalchemy.exc.DBAPIError: as SQLAlchemy's own ways of executing do.
    """
    return _execute(connection, statement, parameters, _FETCHED_ROWS)


def count(connection: Connection, statement: str, parameters: Parameters) -> int:
    """Execute a statement that returns no rows, and return how many it changed.

    :raises sqlalchemy.exc.DBAPIError: as SQLAlchemy's own ways of executing do.
    """
    return _execute(connection, statement, parameters, _ROW_COUNT)


def _execute(
    connection: Connection,
    statement: str,
    parameters: Parameters,
    outcome: Callable[[Any], _Result],
) -> _Result:
    """Return the outcome of a statement, of the driver's cursor or of SQLAlchemy's result."""
    if connection.get_execution_options().get(OPTION) and not _is_watched(connection):
        driver, pooled_connection = connection.dialect.loaded_dbapi, connection.connection
        try:
            prepared = pooled_connection.info.get(PREPARED)
            execution = prepared.execute(statement, parameters) if prepared is not None else None
            if execution is not None:
                return outcome(execution)
            # Taken out: one that fails, in whatever way, is dropped and ends its statement.
            cursor = pooled_connection.info.pop(_CURSOR, None) or pooled_connection.cursor()
            cursor.execute(statement, parameters)
            result = outcome(cursor)
            pooled_connection.info[_CURSOR] = cursor
            return result
        except driver.Error as error:
            # A broken connection is left to SQLAlchemy, which meets it again and discards it: no
            # statement is executed on it. What ran into a time limit would only wait once more.
            if not connection.dialect.is_disconnect(
                error, pooled_connection.driver_connection, None
            ):
                raise DBAPIError.instance(
                    statement, parameters, error, driver.Error, dialect=connection.dialect
                ) from error
    return outcome(connection.exec_driver_sql(statement, parameters))


def whole_rows(connection: Connection, statement: str) -> Sequence[Any]:
    """Return the rows of a whole table as tuples, of which the cursor keeps no copy.

    :raises sqlalchemy.exc.DBAPIError: as SQLAlchemy's own ways of executing do.
    """
    pooled_connection = connection.connection
    if connection.dialect.name == "postgresql":
        # numbers and bytes need not come as texts
        pooled_connection.info[_CURSOR] = pooled_connection.cursor(binary=True)
    try:
        fetched_rows = rows(connection, statement, ())
    finally:
        pooled_connection.info.pop(_CURSOR, None)
    if fetched_rows and type(fetched_rows[0]) is not tuple:
        # of SQLAlchemy, where it logs statements; numpy takes no other rows than tuples
        return list(map(tuple, fetched_rows))
    return fetched_rows


def _is_watched(connection: Connection) -> bool:
    """Check whether somebody, a trace for example, is to be told of each statement."""
    engine = connection.engine
    # as SQLAlchemy does: to look for listeners takes six calls
    return engine._has_events and bool(engine.dispatch.before_cursor_execute)


class _Form(NamedTuple):
    text: str
    positions: Sequence[str] | None
    conversions: Sequence[tuple[int, Callable[[Any], Any]]]
    compiled: SQLCompiler | None
    """What a list of values is written into, one parameter each; `None`: the text is whole."""

    def filled(self, parameters: Mapping[str, Any]) -> tuple[str, Parameters]:
        """Return the text and the parameters of the driver."""
        if self.compiled is not None:
            state = self.compiled.construct_expanded_state(dict(parameters))
            if self.positions is None:
                return state.statement, dict(state.parameters)
            return state.statement, state.positional_parameters
        if self.positions is None:
            return self.text, dict(parameters)
        return self.text, tuple(parameters[name] for name in self.positions)


class PlainSelect:
    """A SELECT whose text is made once for each driver.

    :param statement: all of its parameters are texts, numbers, or lists made by `Batches.many` for
        conditions of `batches.among`.
    """

    def __init__(self, statement: Select[*tuple[Any, ...]]) -> None:
        self._statement = statement
        self._forms: dict[tuple[str, str], _Form] = {}

    def rows(self, connection: Connection, parameters: Mapping[str, Any]) -> Sequence[Any]:
        """Return the rows, with the types that the columns have for SQLAlchemy."""
        dialect = connection.dialect
        form = self._forms.get((dialect.name, dialect.driver))
        if form is None:
            form = self._forms[dialect.name, dialect.driver] = self._form(dialect)
        found_rows = rows(connection, *form.filled(parameters))
        if not form.conversions:
            return found_rows
        converted_rows = []
        for row in found_rows:
            values = list(row)
            for position, convert in form.conversions:
                values[position] = convert(values[position])
            converted_rows.append(tuple(values))
        return converted_rows

    def _form(self, dialect: Dialect) -> _Form:
        compiled_statement = self._statement.compile(dialect=dialect)
        assert isinstance(compiled_statement, SQLCompiler), "it is no definition of a table"
        has_list = any(parameter.expanding for parameter in compiled_statement.binds.values())
        # The driver of SQLite returns times as texts; all else has its type from any driver.
        conversions = {
            number: column.type.dialect_impl(dialect).result_processor(dialect, None)
            for number, column in enumerate(self._statement.selected_columns)
            if isinstance(column.type, DateTime)
        }
        return _Form(
            str(compiled_statement),
            compiled_statement.positiontup if compiled_statement.positional else None,
            [(number, convert) for number, convert in conversions.items() if convert],
            compiled_statement if has_list else None,
        )


@lru_cache(maxsize=256)
def select_of(statement: Select[*tuple[Any, ...]]) -> PlainSelect:
    """Return the one plain select of a statement, which is a constant of a module."""
    return PlainSelect(statement)
