"""The schema's revisions: which one the database has, and which one this version works with.

The first revision carries the id of OpenStack Placement's newest one and makes the same tables,
so a database made by OpenStack Placement goes forward in place, and back.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, Engine, inspect, text

from placement_server.store.errors import (
    SchemaIncomplete,
    SchemaOutOfDate,
    SchemaRevisionUnknown,
)
from placement_server.store.tables import metadata

OPENSTACK_REVISION: Final = "a082b8bb98d0"
NEWEST_REVISION: Final = "9b3e57d2f1c4"

REVISIONS: Final = (OPENSTACK_REVISION, "4d1f0c6b2a57", NEWEST_REVISION)
"""All revisions that can be taken forward, the oldest first."""


def current_revision(engine: Engine) -> str | None:
    """The revision that the database says it has; None for a database without one."""
    with engine.connect() as connection, connection.begin():
        return revision_of(connection)


def revision_of(connection: Connection) -> str | None:
    """The revision that the connected database says it has."""
    # alembic could tell as well, but not without two lines in the log
    if not inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
    return found


def require_newest(engine: Engine) -> None:
    """Raises the error of :func:`refusal` unless this version works with the schema."""
    with engine.connect() as connection, connection.begin():
        refused = refusal(connection)
    if refused is not None:
        raise refused


def refusal(
    connection: Connection,
) -> SchemaOutOfDate | SchemaRevisionUnknown | SchemaIncomplete | None:
    """Why this version does not work with the schema of the connected database, if so.

    SchemaOutOfDate: it can be taken forward. SchemaRevisionUnknown: it cannot. SchemaIncomplete:
    it is not what its revision says.
    """
    revision = revision_of(connection)
    if revision != NEWEST_REVISION:
        if revision is None or revision in REVISIONS:
            return SchemaOutOfDate(revision, NEWEST_REVISION)
        return SchemaRevisionUnknown(revision, "this version does not know that revision")
    missing = _missing(connection)
    return SchemaIncomplete(revision, missing) if missing else None


def _missing(connection: Connection) -> list[str]:
    """Tables, and columns of others, that should be there and are not."""
    found = inspect(connection).get_multi_columns(filter_names=list(metadata.tables))
    columns = {key[1]: {column["name"] for column in value} for key, value in found.items()}
    missing: list[str] = []
    for name, table in metadata.tables.items():
        if name not in columns:
            missing.append(name)
        else:
            missing += (
                f"{name}.{column.name}" for column in table.c if column.name not in columns[name]
            )
    return sorted(missing)
