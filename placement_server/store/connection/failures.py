"""Failures of a database: those that pass by themselves and are waited for, and those that last."""

from __future__ import annotations

import logging
import re
import sqlite3
import ssl
from typing import Final

import tenacity
from sqlalchemy import Engine
from sqlalchemy.exc import DataError, DBAPIError, NotSupportedError, ProgrammingError

from placement_server.store.connection.options import StoreOptions
from placement_server.store.connection.url import shown_url
from placement_server.store.errors import StoreUnavailable

LOG = logging.getLogger(__name__)

# Codes of failures: texts of PostgreSQL, positive numbers of MySQL, negated numbers of SQLite.
# A lock was not available in time.
LOCKED: Final[frozenset[object]] = frozenset({"55P03", 1205, -sqlite3.SQLITE_BUSY})
# A statement took too long: statement_timeout, max_statement_time, max_execution_time.
CUT_OFF: Final[frozenset[object]] = frozenset({"57014", 1969, 3024})
# No room on a disk, or none that a limit allows; MySQL: in a table, or by the error of the system.
FULL: Final[frozenset[object]] = frozenset({"53100", 1021, 1114, -sqlite3.SQLITE_FULL})
PASSING: Final[frozenset[object]] = frozenset(
    {
        # serialization failure, deadlock; server going down or coming up; a prepared statement that
        # somebody else deallocated, or whose columns have other types now
        *("40001", "40P01", "57P01", "57P02", "57P03", "26000", "0A000"),
        # deadlock, record changed since last read, Galera: not yet prepared;
        # cannot connect (socket, TCP), gone away, lost in a query, server shutdown
        *(1213, 1020, 1047, 2002, 2003, 2006, 2013, 1053),
        -sqlite3.SQLITE_LOCKED,
        *LOCKED,
    }
)

# Too many connections, in all and of one user.
_CROWDED_MYSQL: Final = frozenset({1040, 1203})
_CROWDED_POSTGRESQL: Final = "53300"
# Connection exceptions of PostgreSQL.
_CONNECTION_CLASS: Final = "08"
# Insufficient privilege, read-only transaction.
_FORBIDDEN_POSTGRESQL: Final = frozenset({"42501", "25006"})

# libpq has no code for a failure before a session, only text, that of the server in its language.
# A failure that is not known here is waited for. psycopg 3.1 to 3.1.13 keeps of an invalid value
# nothing but the value, in quotes.
_LASTING_TEXT: Final = re.compile(
    r'(role|database) ".*" does not exist|authentication failed|no password supplied'
    r"|no pg_hba\.conf entry|not permitted to log in|not currently accepting connections"
    r"|permission denied|[Cc]ertificate|SSL was required|invalid .*(value|option|port)"
    r'|connection is bad: "[^"]*"$'
)
_PASSING_TEXT: Final = re.compile(
    r"[Cc]onnection refused|timeout|starting up|shutting down|not yet accepting|recovery"
    r"|too many|remaining connection slots|closed the connection|session is (not )?read-only"
)
# What libpq asks the reader behind a refused connection.
_QUESTION: Final = re.compile(r"\s+Is the server running [^?]*\?")


def is_lasting(error: BaseException) -> bool:
    """Return whether a connection that failed like this fails again until an operator acts.

    For example: a wrong password, a database that does not exist, a file that is not a database.
    """
    if not isinstance(error, DBAPIError):
        # the driver does not take the parameters, or finds no file that they name
        return True
    code = code_of(error)
    if isinstance(error.orig, sqlite3.Error):
        return code not in PASSING | {-sqlite3.SQLITE_PROTOCOL}
    if isinstance(code, str):
        passes = code in PASSING or code.startswith(_CONNECTION_CLASS)
        return not passes and code != _CROWDED_POSTGRESQL
    if isinstance(getattr(error.orig, "original_exception", None), ssl.SSLError):
        return True
    if code is None and hasattr(error.orig, "sqlstate"):
        text = str(error.orig)
        return bool(_LASTING_TEXT.search(text)) and not _PASSING_TEXT.search(text)
    return code not in PASSING | _CROWDED_MYSQL


def is_of_the_database(error: DBAPIError) -> bool:
    """Return whether the database or its configuration is at fault, rather than a statement."""
    if getattr(error.orig, "sqlstate", None) in _FORBIDDEN_POSTGRESQL:
        return True
    return not isinstance(error, ProgrammingError | DataError | NotSupportedError)


def code_of(error: BaseException) -> str | int | None:
    """Return the database's code of a failure: a text on PostgreSQL, else a number.

    :returns: the code, negated for SQLite; `None` when the failure is not the database's, or there
        was no session to give a code.
    """
    cause = error.orig if isinstance(error, DBAPIError) else None
    if isinstance(cause, sqlite3.Error):
        return -(getattr(cause, "sqlite_errorcode", 0) & 0xFF)
    number = cause.args[0] if cause is not None and cause.args else None
    # PyMySQL's errors have an SQLSTATE too, which is less exact than their number.
    return number if isinstance(number, int) else getattr(cause, "sqlstate", None)


def reason_of(error: BaseException) -> str:
    """Return the message of the database or its driver, in one line and without the statement."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    # psycopg adds the line of the statement and the tuple to the text of PostgreSQL's message
    primary = getattr(getattr(cause, "diag", None), "message_primary", None)
    if primary:
        return str(primary)
    return " ".join(_QUESTION.sub("", str(cause)).split()) or type(cause).__name__


def await_database(engine: Engine, options: StoreOptions) -> None:
    """Connect once; wait for a database that is not up yet as long as the options allow.

    :raises StoreUnavailable: the database is not up in time; or, without a wait, waiting does not
        help, as with a wrong password.
    """
    place = shown_url(engine.url)
    tries, interval = options.connect_tries, options.connect_interval

    def connect() -> None:
        with engine.connect():
            pass

    def log_failure(state: tenacity.RetryCallState) -> None:
        tries_left = tries - state.attempt_number
        limit = f"for at most {tries_left * interval:g} s" if tries >= 0 else "without limit"
        error = state.outcome and state.outcome.exception()
        LOG.warning(
            "Cannot connect to %s yet: %s. Waiting for it %s, trying again every %g s "
            "([placement_database]max_retries, retry_interval).",
            place,
            reason_of(error) if error else "no reason given",
            limit,
            interval,
        )

    try:
        tenacity.Retrying(
            stop=tenacity.stop_never if tries < 0 else tenacity.stop_after_attempt(max(1, tries)),
            wait=tenacity.wait_fixed(interval),
            retry=tenacity.retry_if_exception(lambda error: not is_lasting(error)),
            before_sleep=log_failure,
            reraise=True,
        )(connect)
    except Exception as error:
        advice = (
            "Waiting does not help: correct [placement_database]connection, or the database that "
            "it names."
            if is_lasting(error)
            else "Check [placement_database]connection and that the database runs."
        )
        raise StoreUnavailable(
            f"Cannot connect to {place}: {reason_of(error)}. {advice}"
        ) from error
