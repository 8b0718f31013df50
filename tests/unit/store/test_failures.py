"""Failures that are waited for or begun anew, and what the caller hears in the end."""

from __future__ import annotations

import errno
import sqlite3

import pytest
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError, ProgrammingError

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


@pytest.mark.parametrize(
    "text",
    [
        "Connection refused\n\tIs the server running on that host?",
        "FATAL:  the database system is starting up",
        "FATAL:  sorry, too many clients already",
        "server closed the connection unexpectedly",
        "ВАЖНО:  an unknown text",
    ],
)
def test_a_postgresql_that_may_come_up_is_waited_for(text: str) -> None:
    error = wrapped(DriverError(AT_SERVER + text))
    assert not is_lasting(error)
    assert is_worth_retrying(error)


@pytest.mark.parametrize(
    "text",
    [
        'FATAL:  password authentication failed for user "placement"',
        'FATAL:  role "placement" does not exist',
        'FATAL:  database "placement" does not exist',
        'FATAL:  no pg_hba.conf entry for host "10.0.0.1", user "placement"',
        "server does not support SSL, but SSL was required",
        'root certificate file "/ca.pem" does not exist',
        'invalid sslmode value: "on"',
        # the same by psycopg 3.1 to 3.1.13
        'connection is bad: "on"',
    ],
)
def test_a_refusal_by_postgresql_is_not_waited_for(text: str) -> None:
    error = wrapped(DriverError(AT_SERVER + text))
    assert is_lasting(error)
    assert not is_worth_retrying(error)


def test_one_of_several_hosts_that_may_come_up_is_waited_for() -> None:
    text = f'{AT_SERVER}FATAL:  role "x" does not exist\n{AT_SERVER}Connection refused'
    assert not is_lasting(wrapped(DriverError(text)))


@pytest.mark.parametrize("number", [2003, 1040, 1047])
def test_a_mysql_that_may_come_up_is_waited_for(number: int) -> None:
    assert not is_lasting(wrapped(Exception(number, "text")))


@pytest.mark.parametrize("number", [1044, 1045, 1049, 1130, 1114, 1290])
def test_a_refusal_by_mysql_is_not_waited_for(number: int) -> None:
    error = wrapped(Exception(number, "text"))
    assert is_lasting(error)
    assert not is_worth_retrying(error)


def test_a_full_disk_of_postgresql_is_not_begun_again() -> None:
    assert not is_worth_retrying(wrapped(DriverError("could not extend file", "53100")))


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


@pytest.mark.parametrize("sqlstate", ["40001", "40P01", "55P03", None])
def test_postgresql_deadlock_serialization_and_lock_timeout_are_begun_anew(
    sqlstate: str | None,
) -> None:
    assert is_worth_retrying(wrapped(DriverError("no", sqlstate)))


@pytest.mark.parametrize("number", [1213, 1205, 2006, 2013])
def test_mysql_deadlock_lock_timeout_and_lost_connection_are_begun_anew(number: int) -> None:
    assert is_worth_retrying(wrapped(Exception(number, "text")))


def test_mysql_goes_by_the_number_and_not_by_the_state_that_its_driver_adds() -> None:
    waited = Exception(1205, "Lock wait timeout exceeded")
    waited.sqlstate = "HY000"  # type: ignore[attr-defined]
    assert is_worth_retrying(wrapped(waited))


LOCKED = wrapped(DriverError("no", "55P03"))
CUT_OFF = [
    wrapped(DriverError("no", "57014")),
    wrapped(Exception(1969, "max_statement_time exceeded")),
    wrapped(Exception(3024, "maximum statement execution time exceeded")),
]


@pytest.mark.parametrize("error", CUT_OFF)
def test_a_statement_that_took_too_long_is_not_begun_again(error: DBAPIError) -> None:
    tries = []

    def too_long() -> None:
        tries.append(1)
        raise error

    with pytest.raises(StoreUnavailable, match=r"\[placement_database\]statement_timeout"):
        retrying(too_long, tries=5, doing="testing")
    assert len(tries) == 1


@pytest.mark.parametrize(("patience", "expected"), [(25.0, 3), (100.0, 5)])
def test_a_lock_is_waited_for_again_until_the_patience_is_over(
    patience: float, expected: int
) -> None:
    now = [0.0]

    def wait() -> None:
        now.append(now[-1] + 10)
        raise LOCKED

    with pytest.raises(StoreUnavailable, match=r"\[placement_database\]lock_timeout"):
        retrying(wait, tries=5, doing="testing", patience=patience, clock=lambda: now[-1])
    assert len(now) - 1 == expected


def test_a_mistake_in_a_statement_is_not_begun_anew() -> None:
    assert not is_worth_retrying(wrapped(DriverError("no", "42601"), ProgrammingError))
    assert not is_worth_retrying(wrapped(Exception(1064, "syntax"), ProgrammingError))
    assert not is_worth_retrying(wrapped(sqlite3.OperationalError("no such table")))


def test_refusals_are_handed_on_at_the_first_try() -> None:
    tries = []

    def refuse() -> None:
        tries.append(1)
        raise ProviderNotFound("x")

    with pytest.raises(ProviderNotFound):
        retrying(refuse, tries=5, doing="testing")
    assert len(tries) == 1


def test_a_lost_race_is_begun_anew_until_it_is_won() -> None:
    tries = []

    def second_time() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise LostRace("changed")
        return "won"

    assert retrying(second_time, tries=5, doing="testing") == "won"
    assert len(tries) == 3


@pytest.mark.parametrize("tries", [1, 4])
def test_after_the_last_try_a_lost_race_is_a_concurrent_update(tries: int) -> None:
    made = []

    def lose() -> None:
        made.append(1)
        raise LostRace("changed")

    with pytest.raises(ConcurrentUpdate):
        retrying(lose, tries=tries, doing="testing")
    assert len(made) == tries


def test_after_the_last_try_a_failing_database_is_unavailable() -> None:
    def fail() -> None:
        raise wrapped(DriverError("no", "40P01"))

    with pytest.raises(StoreUnavailable, match="testing"):
        retrying(fail, tries=2, doing="testing")


def test_a_lost_race_for_a_unique_key_is_begun_anew() -> None:
    assert is_worth_retrying(wrapped(sqlite3.IntegrityError("UNIQUE"), IntegrityError))
