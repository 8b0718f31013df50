"""Failures to connect that are waited for."""

from __future__ import annotations

import errno

import pytest
from sqlalchemy.exc import DBAPIError, OperationalError

from placement_server.store.connection.failures import is_lasting, reason_of
from placement_server.store.connection.options import StoreOptions
from placement_server.store.errors import StoreUnavailable
from placement_server.store.transactions.engine import create_engines
from placement_server.store.transactions.transaction import is_worth_retrying, retrying

AT_SERVER = 'connection failed: connection to server at "127.0.0.1", port 5432 failed: '


class DriverError(Exception):
    def __init__(self, text: str, sqlstate: str | None = None) -> None:
        super().__init__(text)
        self.sqlstate = sqlstate


def wrapped(cause: Exception) -> DBAPIError:
    return OperationalError("SELECT 1", {}, cause)


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
