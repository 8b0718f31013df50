"""The schema's revisions: which one the database has, and which one this version works with.

The first revision carries the id of OpenStack Placement's newest one and makes the same tables,
so a database made by OpenStack Placement goes forward in place, and back.
"""

from __future__ import annotations

import logging
from typing import Final

import tenacity
from sqlalchemy import Connection, Engine, inspect, text
from sqlalchemy.exc import DBAPIError

from placement_server.store.errors import SchemaOutOfDate, StoreUnavailable
from placement_server.store.options import StoreOptions

LOG = logging.getLogger(__name__)

OPENSTACK_REVISION: Final = "a082b8bb98d0"
NEWEST_REVISION: Final = "9b3e57d2f1c4"


def current_revision(engine: Engine) -> str | None:
    """The revision that the database says it has; None for a database without one."""
    with engine.connect() as connection, connection.begin():
        return revision_of(connection)


def require_newest(engine: Engine) -> None:
    """Raises SchemaOutOfDate unless the database has the schema this version works with."""
    found = current_revision(engine)
    if found != NEWEST_REVISION:
        raise SchemaOutOfDate(found, NEWEST_REVISION)


def revision_of(connection: Connection) -> str | None:
    """The revision that the connected database says it has."""
    # alembic could tell as well, but not without two lines in the log
    if not inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
    return found


def await_database(engine: Engine, options: StoreOptions) -> None:
    """Connect once. Raises StoreUnavailable when it failed as often as the options allow."""

    def connect() -> None:
        with engine.connect():
            pass

    stop = (
        tenacity.stop_never
        if options.connect_tries < 0
        else tenacity.stop_after_attempt(max(1, options.connect_tries))
    )
    try:
        tenacity.Retrying(
            stop=stop,
            wait=tenacity.wait_fixed(options.connect_interval),
            retry=tenacity.retry_if_exception_type(DBAPIError),
            before_sleep=tenacity.before_sleep_log(LOG, logging.WARNING),
            reraise=True,
        )(connect)
    except DBAPIError as error:
        raise StoreUnavailable(
            f"Cannot connect to {engine.url.render_as_string(hide_password=True)}: {error.orig}. "
            "Check [placement_database]connection and that the database runs."
        ) from error
