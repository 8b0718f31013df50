"""Failures that are begun anew, and what the caller hears in the end."""

import sqlite3

import pytest
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError, ProgrammingError

from placement_server.store.errors import ConcurrentUpdate, ProviderNotFound, StoreUnavailable
from placement_server.store.transactions.transaction import LostRace, is_worth_retrying, retrying


class DriverError(Exception):
    def __init__(self, sqlstate: str | None) -> None:
        super().__init__("no")
        self.sqlstate = sqlstate


def wrapped(cause: Exception, kind: type[DBAPIError] = OperationalError) -> DBAPIError:
    return kind("SELECT 1", {}, cause)


@pytest.mark.parametrize("sqlstate", ["40001", "40P01", "55P03", None])
def test_postgresql_deadlock_serialization_and_lock_timeout_are_begun_anew(
    sqlstate: str | None,
) -> None:
    assert is_worth_retrying(wrapped(DriverError(sqlstate)))


@pytest.mark.parametrize("number", [1213, 1205, 2006, 2013])
def test_mysql_deadlock_lock_timeout_and_lost_connection_are_begun_anew(number: int) -> None:
    assert is_worth_retrying(wrapped(Exception(number, "text")))


def test_mysql_goes_by_the_number_and_not_by_the_state_that_its_driver_adds() -> None:
    waited = Exception(1205, "Lock wait timeout exceeded")
    waited.sqlstate = "HY000"  # type: ignore[attr-defined]
    assert is_worth_retrying(wrapped(waited))


LOCKED = wrapped(DriverError("55P03"))
CUT_OFF = [
    wrapped(DriverError("57014")),
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
    assert not is_worth_retrying(wrapped(DriverError("42601"), ProgrammingError))
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
        raise wrapped(DriverError("40P01"))

    with pytest.raises(StoreUnavailable, match="testing"):
        retrying(fail, tries=2, doing="testing")


def test_a_lost_race_for_a_unique_key_is_begun_anew() -> None:
    assert is_worth_retrying(wrapped(sqlite3.IntegrityError("UNIQUE"), IntegrityError))
