"""Failures that are waited for or begun anew, and what the caller hears in the end."""

from __future__ import annotations

import errno
import sqlite3

import pytest
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from placement_server.store.connection.failures import is_lasting, reason_of
from placement_server.store.connection.options import StoreOptions
from placement_server.store.engine import create_engines
from placement_server.store.errors import ConcurrentUpdate, ProviderNotFound, StoreUnavailable
from placement_server.store.transaction import LostRace, is_worth_retrying, retrying

AT_SERVER = 'connection failed: connection to server at "127.0.0.1", port 5432 failed: '


class DriverError(Exception):
    def __init__(self, text: str, sqlstate: str | None = None) -> None:
        super().__init__(text)
        self.sqlstate = sqlstate


def wrapped(cause: Exception, kind: type[DBAPIError] = OperationalError) -> DBAPIError:
    return kind("SELECT 1", {}, cause)


MAY_COME_UP = [
    "Connection refused\n\tIs the server running on that host?",
    "FATAL:  the database system is starting up",
    "FATAL:  sorry, too many clients already",
    "server closed the connection unexpectedly",
    "ВАЖНО:  an unknown text",
    # one of several hosts
    f'FATAL:  role "x" does not exist\n{AT_SERVER}Connection refused',
]
REFUSES = [
    'FATAL:  password authentication failed for user "placement"',
    'FATAL:  role "placement" does not exist',
    'FATAL:  database "placement" does not exist',
    'FATAL:  no pg_hba.conf entry for host "10.0.0.1", user "placement"',
    "server does not support SSL, but SSL was required",
    'root certificate file "/ca.pem" does not exist',
    'invalid sslmode value: "on"',
    # the same by psycopg 3.1 to 3.1.13
    'connection is bad: "on"',
]


@pytest.mark.parametrize(
    ("cause", "lasts"),
    [
        *((DriverError(AT_SERVER + text), False) for text in MAY_COME_UP),
        *((DriverError(AT_SERVER + text), True) for text in REFUSES),
        *((Exception(number, "text"), False) for number in (2003, 1047)),
        *((Exception(number, "text"), True) for number in (1044, 1045, 1049, 1130, 1114, 1290)),
    ],
)
def test_a_server_that_may_come_up_is_waited_for_and_a_refusal_is_not(
    cause: Exception, lasts: bool
) -> None:
    error = wrapped(cause)
    assert is_lasting(error) is lasts
    assert is_worth_retrying(error) is not lasts


@pytest.mark.parametrize(
    ("cause", "lasts"),
    [
        *((Exception(number, "too many connections"), False) for number in (1040, 1203)),
        *((DriverError("text", state), False) for state in ("57P03", "08006", "53300")),
        *((DriverError("text", state), True) for state in ("28P01", "3D000")),
        (FileNotFoundError(2, "No such file", "/ca.pem"), True),
    ],
)
def test_the_first_connection_waits_for_a_server_that_is_full_or_starts(
    cause: Exception, lasts: bool
) -> None:
    assert is_lasting(cause if isinstance(cause, OSError) else wrapped(cause)) == lasts


def test_the_reason_is_one_line_without_the_statement() -> None:
    assert reason_of(wrapped(DriverError("first\n\tsecond"))) == "first second"
    refusal = (
        "Connection refused\n\tIs the server running on that host and accepting TCP/IP connections?"
    )
    assert reason_of(wrapped(DriverError(AT_SERVER + refusal))) == f"{AT_SERVER}Connection refused"
    assert reason_of(FileNotFoundError(2, "No such file", "/ca.pem")).endswith("'/ca.pem'")


def test_a_connection_for_which_no_descriptor_is_free_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # psycopg needs one of its own to wait, and lets the system's error through
    psycopg = pytest.importorskip("psycopg")

    def connect(*_arguments: object, **_named: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    engines = create_engines("postgresql+psycopg://u@127.0.0.1/x", StoreOptions())
    monkeypatch.setattr(psycopg, "connect", connect)
    monkeypatch.setattr(psycopg.Connection, "connect", connect)
    for engine in (engines.reader, engines.writer, engines.single):
        assert engine is not None
        with pytest.raises(OperationalError, match="Too many open files") as caught:
            engine.connect()
        assert not is_lasting(caught.value)
        assert is_worth_retrying(caught.value)
        with pytest.raises(StoreUnavailable, match="Too many open files"):
            retrying(engine.connect, tries=2, doing="reading")


def lock_wait() -> Exception:
    """MySQL counts by the number, and not by the state that its driver adds."""
    waited = Exception(1205, "Lock wait timeout exceeded")
    waited.sqlstate = "HY000"  # type: ignore[attr-defined]
    return waited


@pytest.mark.parametrize(
    ("error", "again"),
    [
        # deadlock, serialization, lock timeout, lost connection
        *((wrapped(DriverError("no", state)), True) for state in ("40001", "40P01", "55P03", None)),
        *((wrapped(Exception(number, "text")), True) for number in (1213, 1205, 2006, 2013)),
        (wrapped(lock_wait()), True),
        # a lost race for a unique key
        (wrapped(sqlite3.IntegrityError("UNIQUE"), IntegrityError), True),
        # a full disk, mistakes in statements
        (wrapped(DriverError("could not extend file", "53100")), False),
        (wrapped(DriverError("no", "42601"), ProgrammingError), False),
        (wrapped(DriverError("cannot adapt type 'X'"), ProgrammingError), False),
        (wrapped(Exception(1064, "syntax"), ProgrammingError), False),
        (wrapped(sqlite3.OperationalError("no such table")), False),
    ],
)
def test_what_may_succeed_next_time_is_begun_again(error: DBAPIError, again: bool) -> None:
    assert is_worth_retrying(error) is again


LOCKED = wrapped(DriverError("no", "55P03"))
CUT_OFF = [
    wrapped(DriverError("no", "57014")),
    wrapped(Exception(1969, "max_statement_time exceeded")),
    wrapped(Exception(3024, "maximum statement execution time exceeded")),
]


@pytest.mark.parametrize(
    ("error", "raised", "text", "tries", "made"),
    [
        (ProviderNotFound("x"), ProviderNotFound, "x", 5, 1),
        *(
            (cut, StoreUnavailable, r"\[placement_database\]statement_timeout", 5, 1)
            for cut in CUT_OFF
        ),
        (PoolTimeout("no"), StoreUnavailable, "testing; raise .*max_pool_size", 5, 1),
        (LostRace("changed"), ConcurrentUpdate, "changed", 4, 4),
        (LostRace("changed"), ConcurrentUpdate, "changed", 1, 1),
        (wrapped(DriverError("no", "40P01")), StoreUnavailable, "testing", 2, 2),
    ],
)
def test_after_the_last_try_the_caller_gets_an_error_of_the_store(
    error: Exception, raised: type[Exception], text: str, tries: int, made: int
) -> None:
    """The first try is the last one where another would end alike."""
    calls = []

    def fail() -> None:
        calls.append(1)
        raise error

    with pytest.raises(raised, match=text):
        retrying(fail, tries=tries, doing="testing")
    assert len(calls) == made


DEADLOCK = wrapped(DriverError("no", "40P01"))


@pytest.mark.parametrize(
    ("error", "patience", "expected"), [(LOCKED, 25.0, 3), (LOCKED, 100.0, 5), (DEADLOCK, 25.0, 5)]
)
def test_a_lock_is_waited_for_again_until_the_patience_is_over(
    error: DBAPIError, patience: float, expected: int
) -> None:
    now = [0.0]

    def wait() -> None:
        now.append(now[-1] + 10)
        raise error

    text = "The database failed" if error is DEADLOCK else r"\[placement_database\]lock_timeout"
    with pytest.raises(StoreUnavailable, match=text):
        retrying(wait, tries=5, doing="testing", patience=patience, clock=lambda: now[-1])
    assert len(now) - 1 == expected


def test_a_lost_race_is_begun_anew_until_it_is_won() -> None:
    tries = []

    def second_time() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise LostRace("changed")
        return "won"

    assert retrying(second_time, tries=5, doing="testing") == "won"
    assert len(tries) == 3
