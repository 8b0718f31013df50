"""The outcome of a commit during which the connection broke."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Final

import tenacity
from sqlalchemy import Engine, insert, select
from sqlalchemy.exc import DBAPIError, IntegrityError

from placement_server.store.connection.options import StoreOptions
from placement_server.store.errors import StoreUnavailable
from placement_server.store.tables import changes
from placement_server.store.transaction import is_worth_retrying

LOG = logging.getLogger(__name__)

_LONG_AGO: Final = datetime(1970, 1, 1)


def was_committed(
    engine: Engine, change_id: int | None, write_id: int, options: StoreOptions
) -> bool:
    """Return whether the transaction that wrote `changes` row `change_id` was committed.

    A plain read could come too early, while the old session still processes its COMMIT. So this
    inserts a row with the same key: the database makes it wait until the old session is gone,
    and then either refuses it (the old row is there) or takes it (it never will be).

    :raises StoreUnavailable: the database does not come back.
    """
    if change_id is None:
        return False

    def ask() -> bool:
        with engine.connect() as connection:
            transaction = connection.begin()
            try:
                connection.execute(
                    insert(changes).values(
                        id=change_id,
                        created_at=_LONG_AGO,
                        root_provider_id=0,
                        kind=0,
                        write_id=write_id,
                    )
                )
            except IntegrityError:
                transaction.rollback()
                found_write_id = connection.scalar(
                    select(changes.c.write_id).where(changes.c.id == change_id)
                )
                connection.rollback()
                return bool(found_write_id == write_id)
            transaction.rollback()
            return False

    try:
        return tenacity.Retrying(
            stop=tenacity.stop_after_attempt(max(2, options.claim_tries)),
            wait=tenacity.wait_random_exponential(multiplier=0.05, max=2.0),
            retry=tenacity.retry_if_exception(is_worth_retrying),
            reraise=True,
        )(ask)
    except DBAPIError as error:
        raise StoreUnavailable(
            "The connection to the database broke during a commit and does not come back, so it "
            "is not known whether the change was made; read it before repeating it",
            cause=str(error.orig),
        ) from error
