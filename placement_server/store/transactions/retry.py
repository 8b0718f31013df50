"""Retries of transactions: the failures that are worth one, and how many there are.

A retry always starts after a rollback, with nothing left of the failed try.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn, TypeVar

import tenacity
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from placement_server.store.connection import failures
from placement_server.store.errors import ConcurrentUpdate, StoreError, StoreUnavailable

LOG = logging.getLogger(__name__)

_Result = TypeVar("_Result")


class LostRace(StoreError):
    """A change by another writer since this transaction read; it is to be retried from its start.

    :ivar uuids: the uuids of the providers that changed, if it is about providers.
    """

    def __init__(self, detail: str, *, uuids: Sequence[str] = ()) -> None:
        super().__init__(detail)
        self.uuids = tuple(uuids)


def is_worth_retrying(error: BaseException) -> bool:
    """Return whether the failed transaction left nothing and may succeed when it is retried."""
    if isinstance(error, LostRace):
        return True
    if not isinstance(error, DBAPIError):
        return False
    if isinstance(error, IntegrityError):
        # lost the race for a unique key, or a referenced row went away; the next try sees it
        return True
    if error.connection_invalidated:
        return True
    code = failures.code_of(error)
    if code is None:
        # psycopg has no code when there was no session to give one
        return isinstance(error, OperationalError) and not failures.is_lasting(error)
    return code in failures.PASSING


def is_disconnect(error: BaseException) -> bool:
    return isinstance(error, DBAPIError) and error.connection_invalidated


def retrying(
    once: Callable[[], _Result],
    *,
    tries: int,
    doing: str,
    patience: float = math.inf,
    clock: Callable[[], float] = time.monotonic,
) -> _Result:
    """Run ``once``, and retry it while its failure is worth it.

    :param tries: how often ``once`` runs at most.
    :param doing: what ``once`` does, for errors.
    :param patience: seconds after which a lock that was not available in time is not retried.
    :raises ConcurrentUpdate: the last failure was a lost race.
    :raises StoreUnavailable: the last failure was the database's.
    :raises Exception: any other error of ``once``, as it is.
    """
    start = clock()

    def may_succeed(error: BaseException) -> bool:
        if failures.code_of(error) in failures.LOCKED and clock() - start >= patience:
            return False
        return is_worth_retrying(error)

    try:
        # nearly every call ends here, without the cost of tenacity
        return once()
    except Exception as error:  # noqa: BLE001 - all are raised again
        if tries <= 1 or not may_succeed(error):
            _raise_translated(error, doing)
    again = tenacity.Retrying(
        stop=tenacity.stop_after_attempt(tries - 1),
        wait=tenacity.wait_random_exponential(multiplier=0.004, max=0.6),
        retry=tenacity.retry_if_exception(may_succeed),
        before_sleep=tenacity.before_sleep_log(LOG, logging.DEBUG),
        reraise=True,
    )
    try:
        return again(once)
    except Exception as error:  # noqa: BLE001 - all are raised again
        _raise_translated(error, doing)


@contextlib.contextmanager
def translate_failures(doing: str) -> Iterator[None]:
    """Raise failures of the database as :func:`retrying` does, without a retry."""
    try:
        yield
    except DBAPIError as error:
        _raise_translated(error, doing)


def _raise_translated(error: Exception, doing: str) -> NoReturn:
    if isinstance(error, LostRace):
        raise ConcurrentUpdate(
            f"Other writers kept changing the same records while {doing}: {error}",
            uuids=error.uuids,
        ) from error
    if isinstance(error, IntegrityError):
        raise ConcurrentUpdate(
            f"Other writers kept changing the same records while {doing}."
        ) from error
    if isinstance(error, PoolTimeout):
        raise StoreUnavailable(
            f"No database connection became free while {doing}; raise [placement_database]"
            "max_pool_size or max_overflow."
        ) from error
    if isinstance(error, DBAPIError) and (
        failures.is_of_the_database(error) or is_worth_retrying(error)
    ):
        raise StoreUnavailable(
            f"{_reason(error)} while {doing}: {failures.reason_of(error)}"
        ) from error
    raise error


def _reason(error: Exception) -> str:
    code = failures.code_of(error)
    if code in failures.CUT_OFF:
        return (
            "The database ended a statement that took longer than [placement_database]"
            "statement_timeout, and nothing was changed,"
        )
    if code in failures.LOCKED:
        return (
            "The database did not give a lock within [placement_database]lock_timeout, and "
            "nothing was changed,"
        )
    return "The database failed"
