"""The revisions of the schema: that of the database, and that which this version needs.

The first revision carries the id of OpenStack Placement's newest one and makes the same tables,
so a database made by OpenStack Placement goes forward in place, and back.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, Engine, inspect, text

from placement_server.store.errors import SchemaOutOfDate, SchemaRevisionUnknown, StoreError
from placement_server.store.tables import metadata

OPENSTACK_REVISION: Final = "a082b8bb98d0"
NEWEST_REVISION: Final = "7a3e91c05d84"

REVISIONS: Final = (OPENSTACK_REVISION, NEWEST_REVISION)
"""All revisions that can be taken forward, the oldest first."""


def current_revision(engine: Engine) -> str | None:
    """Return the recorded revision of the database; `None` for a database without one."""
    with engine.connect() as connection, connection.begin():
        return revision_of(connection)


def revision_of(connection: Connection) -> str | None:
    """Return the recorded revision of the connected database, as `current_revision`."""
    # alembic could read it as well, but not without two lines in the log
    if not inspect(connection).has_table("alembic_version"):
        return None
    revision: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
    return revision


def require_newest(engine: Engine) -> None:
    """Check that this version works with the schema.

    :raises StoreError: it does not; the error is that of `refusal`.
    """
    with engine.connect() as connection, connection.begin():
        error = refusal(connection)
    if error is not None:
        raise error


def refusal(connection: Connection) -> StoreError | None:
    """Return why this version does not work with the schema of the connected database.

    :returns: SchemaOutOfDate if the schema can be taken forward, SchemaRevisionUnknown if it
        cannot, StoreError if it lacks parts of its revision; `None` if this version works with it.
    """
    revision = revision_of(connection)
    if revision != NEWEST_REVISION:
        if revision is None or revision in REVISIONS:
            return SchemaOutOfDate(revision, NEWEST_REVISION)
        return SchemaRevisionUnknown(revision, "this version does not know that revision")
    missing_parts = _missing_parts(connection)
    if not missing_parts:
        return None
    return StoreError(
        f"The database is recorded at schema revision {revision}, but lacks "
        f"{', '.join(missing_parts)}: restore it from a backup, or record the revision that it has "
        "with 'placement-manage db stamp REVISION' and run 'placement-manage db sync'."
    )


def _missing_parts(connection: Connection) -> list[str]:
    """Return the tables that are missing, and the missing columns of the others."""
    present = inspect(connection).get_multi_columns(filter_names=list(metadata.tables))
    columns = {key[1]: {column["name"] for column in value} for key, value in present.items()}
    missing_parts: list[str] = []
    for name, table in metadata.tables.items():
        if name not in columns:
            missing_parts.append(name)
        else:
            missing_parts += (
                f"{name}.{column.name}" for column in table.c if column.name not in columns[name]
            )
    return sorted(missing_parts)
