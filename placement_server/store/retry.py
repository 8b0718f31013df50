"""Which failures of a transaction are worth beginning it anew, and how often.

A retry always starts after a rollback, with nothing left of the failed try.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Sequence
from typing import Final, NoReturn, TypeVar

import tenacity
from sqlalchemy.exc import DBAPIError, IntegrityError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from placement_server.store.errors import ConcurrentUpdate, StoreError, StoreUnavailable

LOG = logging.getLogger(__name__)

_Result = TypeVar("_Result")

# serialization failure, deadlock, lock not available; server going down or coming up
_POSTGRESQL: Final = frozenset({"40001", "40P01", "55P03", "57P01", "57P02", "57P03"})
# deadlock, lock wait timeout, record changed since last read, Galera: not yet prepared;
# cannot connect (socket, TCP), gone away, lost in a query, server shutdown
_MYSQL: Final = frozenset({1213, 1205, 1020, 1047, 2002, 2003, 2006, 2013, 1053})
_SQLITE: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})


class LostRace(StoreError):
    """What was read at the start of this transaction is no longer so; begin it anew.

    ``uuids`` are those of the providers concerned, as far as it is about providers.
    """

    def __init__(self, detail: str, *, uuids: Sequence[str] = ()) -> None:
        super().__init__(detail)
        self.uuids = tuple(uuids)


def is_worth_retrying(error: BaseException) -> bool:
    """Whether the failed transaction left nothing and may go better when begun anew."""
    if isinstance(error, LostRace):
        return True
    if not isinstance(error, DBAPIError):
        return False
    if isinstance(error, IntegrityError):
        # lost the race for a unique key, or a referenced row went away; the next try sees it
        return True
    if error.connection_invalidated:
        return True
    cause = error.orig
    if isinstance(cause, sqlite3.Error):
        return getattr(cause, "sqlite_errorcode", 0) & 0xFF in _SQLITE
    if hasattr(cause, "sqlstate"):
        code = getattr(cause, "sqlstate", None)
        # psycopg cannot give a code when there was no server to give one
        no_server = code is None and isinstance(error, OperationalError)
        return no_server or code in _POSTGRESQL
    number = cause.args[0] if cause is not None and cause.args else None
    return isinstance(number, int) and number in _MYSQL


def is_disconnect(error: BaseException) -> bool:
    return isinstance(error, DBAPIError) and error.connection_invalidated


def retrying(once: Callable[[], _Result], *, tries: int, doing: str) -> _Result:
    """Run ``once``, and again while it fails in a way that is worth it, ``tries`` times in all.

    Raises ConcurrentUpdate when the last failure was a lost race, StoreUnavailable when it was
    the database's, and any other error of ``once`` as it is.
    """
    try:
        # nearly every call ends here; it does not pay for the machinery below
        return once()
    except Exception as error:  # noqa: BLE001 - all are raised again
        if tries <= 1 or not is_worth_retrying(error):
            _raise_translated(error, doing)
    again = tenacity.Retrying(
        stop=tenacity.stop_after_attempt(tries - 1),
        wait=tenacity.wait_random_exponential(multiplier=0.004, max=0.6),
        retry=tenacity.retry_if_exception(is_worth_retrying),
        before_sleep=tenacity.before_sleep_log(LOG, logging.DEBUG),
        reraise=True,
    )
    try:
        return again(once)
    except Exception as error:  # noqa: BLE001 - all are raised again
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
    if isinstance(error, (OperationalError, InterfaceError)) or is_worth_retrying(error):
        cause = error.orig if isinstance(error, DBAPIError) else error
        raise StoreUnavailable(f"The database failed while {doing}: {cause}") from error
    raise error
