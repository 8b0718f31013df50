"""The wait for a database when a program starts."""

from __future__ import annotations

import logging

import tenacity
from sqlalchemy import Engine

from placement_server.store.connection import failures
from placement_server.store.connection.options import StoreOptions
from placement_server.store.connection.url import shown_url
from placement_server.store.errors import StoreUnavailable

LOG = logging.getLogger(__name__)


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
            failures.reason_of(error) if error else "no reason given",
            limit,
            interval,
        )

    try:
        tenacity.Retrying(
            stop=tenacity.stop_never if tries < 0 else tenacity.stop_after_attempt(max(1, tries)),
            wait=tenacity.wait_fixed(interval),
            retry=tenacity.retry_if_exception(_may_pass),
            before_sleep=log_failure,
            reraise=True,
        )(connect)
    except Exception as error:
        reason = failures.reason_of(error)
        if failures.is_lasting(error):
            raise StoreUnavailable(
                f"Cannot connect to {place}: {reason}. Waiting does not help: correct "
                "[placement_database]connection, or the database that it names."
            ) from error
        raise StoreUnavailable(
            f"Cannot connect to {place}: {reason}. Check [placement_database]connection and that "
            "the database runs."
        ) from error


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, Exception) and not failures.is_lasting(error)
