"""Failures of a database, sorted by whether they pass by themselves."""

from __future__ import annotations

import re
import sqlite3
import ssl
from typing import Final

from sqlalchemy.exc import DataError, DBAPIError, NotSupportedError, ProgrammingError

# serialization failure, deadlock, lock not available; server going down or coming up
POSTGRESQL: Final = frozenset({"40001", "40P01", "55P03", "57P01", "57P02", "57P03"})
# deadlock, lock wait timeout, record changed since last read, Galera: not yet prepared;
# cannot connect (socket, TCP), gone away, lost in a query, server shutdown
MYSQL: Final = frozenset({1213, 1205, 1020, 1047, 2002, 2003, 2006, 2013, 1053})
SQLITE: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})

# Too many connections, in all and of one user.
_CROWDED_MYSQL: Final = frozenset({1040, 1203})
_CROWDED_POSTGRESQL: Final = "53300"
# Connection exceptions of PostgreSQL.
_CONNECTION_CLASS: Final = "08"
# Insufficient privilege, read-only transaction.
_FORBIDDEN_POSTGRESQL: Final = frozenset({"42501", "25006"})

# libpq has no code for what happens before a session, only text: the server's own in its language.
# What is not known here is waited for.
_LASTING_TEXT: Final = re.compile(
    r'(role|database) ".*" does not exist|authentication failed|no password supplied'
    r"|no pg_hba\.conf entry|not permitted to log in|not currently accepting connections"
    r"|permission denied|[Cc]ertificate|SSL was required|invalid .*(value|option|port)"
)
_PASSING_TEXT: Final = re.compile(
    r"[Cc]onnection refused|timeout|starting up|shutting down|not yet accepting|recovery"
    r"|too many|remaining connection slots|closed the connection|session is (not )?read-only"
)


def is_lasting(error: BaseException) -> bool:
    """Whether a connection that failed like this fails again until somebody changes something.

    For example: a wrong password, a database that does not exist, a file that is not one.
    """
    if not isinstance(error, DBAPIError):
        # the driver does not take the parameters, or finds no file that they name
        return True
    cause = error.orig
    if isinstance(cause, sqlite3.Error):
        return sqlite_code(cause) not in SQLITE | {sqlite3.SQLITE_PROTOCOL}
    if cause is not None and hasattr(cause, "sqlstate"):
        state = cause.sqlstate
        if state is None:
            text = str(cause)
            return bool(_LASTING_TEXT.search(text)) and not _PASSING_TEXT.search(text)
        passes = state in POSTGRESQL or state.startswith(_CONNECTION_CLASS)
        return not passes and state != _CROWDED_POSTGRESQL
    if isinstance(getattr(cause, "original_exception", None), ssl.SSLError):
        return True
    return mysql_number(error) not in MYSQL | _CROWDED_MYSQL


def is_of_the_database(error: DBAPIError) -> bool:
    """Whether the database is at fault, or its configuration, rather than a statement."""
    if getattr(error.orig, "sqlstate", None) in _FORBIDDEN_POSTGRESQL:
        return True
    return not isinstance(error, ProgrammingError | DataError | NotSupportedError)


def sqlite_code(cause: sqlite3.Error) -> int:
    """The primary result code, 0 where the driver has none."""
    return getattr(cause, "sqlite_errorcode", 0) & 0xFF


def mysql_number(error: DBAPIError) -> int | None:
    """The error number of MySQL or MariaDB, or of their driver."""
    number = error.orig.args[0] if error.orig is not None and error.orig.args else None
    return number if isinstance(number, int) else None


def reason_of(error: BaseException) -> str:
    """What the database or its driver reports, in one line and without the statement."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return " ".join(str(cause).split()) or type(cause).__name__
