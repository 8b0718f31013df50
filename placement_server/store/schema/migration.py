"""Migrations of the schema from one revision to another, and what each of them makes.

They are apart from reading the revision of a database, because only a migration needs alembic.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Connection, Engine, text

from placement_server.store.errors import SchemaRevisionUnknown, StoreUnavailable
from placement_server.store.schema.revision import revision_of

_LOCK_NAME: Final = "placement-server schema"
_LOCK_NUMBER: Final = 0x706C6163
_LOCK_WAIT: Final = 600


def _config(connection: Connection | None = None) -> Config:
    config = Config()
    config.attributes["connection"] = connection
    config.set_main_option("script_location", "placement_server.store:migrations")
    return config


def upgrade(engine: Engine, revision: str = "head") -> None:
    """Take the database forward. Any number of processes may do this at the same time."""
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
    """Replace alembic's error about a revision by one that names what to do."""
    try:
        yield
    except CommandError as error:
        raise SchemaRevisionUnknown(revision_of(connection), str(error)) from error


@contextlib.contextmanager
def _alone(engine: Engine) -> Iterator[Connection]:
    """Provide a connection in a transaction, while no other process changes the schema.

    SQLite: the write transaction itself. PostgreSQL: an advisory lock that ends with the
    transaction. MySQL, whose DDL commits by itself: a named lock of the session.
    """
    family = engine.dialect.name
    with engine.connect() as connection:
        if family in ("mysql", "mariadb"):
            database = engine.url.database or ""
            name = f"{_LOCK_NAME} {database}"[:64]
            lock_result = connection.scalar(
                text("SELECT GET_LOCK(:name, :wait)"), {"name": name, "wait": _LOCK_WAIT}
            )
            if lock_result != 1:
                raise StoreUnavailable(
                    f"Another process has been changing the schema for {_LOCK_WAIT} s; try again "
                    "when it has ended."
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


def create_missing(connection: sa.Connection, metadata: sa.MetaData) -> None:
    """Create the tables and the indexes that a database lacks.

    MySQL commits each of the statements by itself: a run that was interrupted leaves some parts,
    and the next one goes on from there.
    """
    for table in metadata.sorted_tables:
        table.create(connection, checkfirst=True)
        present = {index["name"] for index in sa.inspect(connection).get_indexes(table.name)}
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            if index.name not in present:
                index.create(connection)


def compare_exactly(connection: sa.Connection, metadata: sa.MetaData) -> None:
    """Give tables a collation in which case and trailing blanks count, and any character.

    With the usual collations of MySQL and MariaDB `A` equals `a` and trailing blanks do not count,
    so that two names become one; with latin1 most names cannot be stored at all. Other databases
    compare exactly already.
    """
    if connection.dialect.name not in ("mysql", "mariadb"):
        return
    # the collations that do not pad with blanks have other names on either side
    mariadb = getattr(connection.dialect, "is_mariadb", False)
    exact = "utf8mb4_nopad_bin" if mariadb else "utf8mb4_0900_bin"
    for table in metadata.sorted_tables:
        collations = connection.scalars(
            sa.text(
                "SELECT collation_name FROM information_schema.columns WHERE "
                "table_schema = database() AND table_name = :table AND collation_name IS NOT NULL"
            ),
            {"table": table.name},
        ).all()
        if set(collations) - {exact}:
            connection.exec_driver_sql(
                f"ALTER TABLE {table.name} CONVERT TO CHARACTER SET utf8mb4 COLLATE {exact}"
            )
