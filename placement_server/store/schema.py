"""The schema's revisions: which one the database has, and taking it to another.

The first revision carries the id of OpenStack Placement's newest one and makes the same tables,
so a database made by OpenStack Placement goes forward in place, and back.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import tenacity
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, Engine, inspect, text
from sqlalchemy.exc import DBAPIError

from placement_server.store.errors import SchemaOutOfDate, SchemaRevisionUnknown, StoreUnavailable
from placement_server.store.options import StoreOptions

LOG = logging.getLogger(__name__)

OPENSTACK_REVISION: Final = "a082b8bb98d0"

_LOCK_NAME: Final = "placement-server schema"
_LOCK_NUMBER: Final = 0x706C6163
_LOCK_WAIT: Final = 600


def _config(connection: Connection | None = None) -> Config:
    config = Config()
    config.attributes["connection"] = connection
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    return config


def newest_revision() -> str:
    head = ScriptDirectory.from_config(_config()).get_current_head()
    assert head is not None, "the migrations have exactly one head"
    return head


def current_revision(engine: Engine) -> str | None:
    """The revision that the database says it has; None for a database without one."""
    with engine.connect() as connection, connection.begin():
        return _revision(connection)


def require_newest(engine: Engine) -> None:
    """Raises SchemaOutOfDate unless the database has the schema this version works with."""
    found, wanted = current_revision(engine), newest_revision()
    if found != wanted:
        raise SchemaOutOfDate(found, wanted)


def upgrade(engine: Engine, revision: str = "head") -> None:
    """Take the database forward. Any number of processes may ask for it at the same time."""
    with _alone(engine) as connection, _known_revisions(connection):
        command.upgrade(_config(connection), revision)


def downgrade(engine: Engine, revision: str) -> None:
    """Take the database back to an older revision."""
    with _alone(engine) as connection, _known_revisions(connection):
        command.downgrade(_config(connection), revision)


def stamp(engine: Engine, revision: str) -> None:
    """Record a revision without changing anything else."""
    with _alone(engine) as connection, _known_revisions(connection):
        command.stamp(_config(connection), revision)


@contextlib.contextmanager
def _known_revisions(connection: Connection) -> Iterator[None]:
    """Turns alembic's complaint about a revision into one that says what to do."""
    try:
        yield
    except CommandError as error:
        raise SchemaRevisionUnknown(_revision(connection), str(error)) from error


def _revision(connection: Connection) -> str | None:
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


@contextlib.contextmanager
def _alone(engine: Engine) -> Iterator[Connection]:
    """A connection in a transaction, while no other process changes the schema.

    SQLite: the write transaction itself. PostgreSQL: an advisory lock that ends with the
    transaction. MySQL, whose DDL commits by itself: a named lock of the session.
    """
    family = engine.dialect.name
    with engine.connect() as connection:
        if family in ("mysql", "mariadb"):
            database = engine.url.database or ""
            name = f"{_LOCK_NAME} {database}"[:64]
            got = connection.scalar(
                text("SELECT GET_LOCK(:name, :wait)"), {"name": name, "wait": _LOCK_WAIT}
            )
            if got != 1:
                raise StoreUnavailable(
                    f"Another process has been changing the schema for {_LOCK_WAIT} s; when it "
                    "is not at work any more, try again."
                )
            connection.commit()
            try:
                with connection.begin():
                    yield connection
            finally:
                connection.execute(text("SELECT RELEASE_LOCK(:name)"), {"name": name})
                connection.commit()
            return
        with connection.begin():
            if family == "postgresql":
                connection.execute(text("SET LOCAL lock_timeout = 0"))
                connection.execute(
                    text("SELECT pg_advisory_xact_lock(:number)"), {"number": _LOCK_NUMBER}
                )
            yield connection
