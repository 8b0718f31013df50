"""The directory with the files of the database, where it is on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import sqlalchemy as sa

_MEMORY: Final = (None, "", ":memory:")
_HERE: Final = (None, "", "localhost", "127.0.0.1", "::1")
_STATEMENTS: Final = {
    # has no row for the users that servers usually have
    "postgresql": "SELECT setting FROM pg_settings WHERE name = 'data_directory'",
    "mysql": "SELECT @@datadir",
    "mariadb": "SELECT @@datadir",
}

_USUAL_DIRECTORY: Final = "/var/lib/postgresql"
"""Of PostgreSQL on Debian, above those of its versions."""


def data_directory(connection: sa.Connection) -> Path | None:
    """Return the directory, as the server names it; None of one in memory or of another machine."""
    url = connection.engine.url
    if url.get_backend_name() == "sqlite":
        return Path(url.database).parent if url.database not in _MEMORY else None
    host = url.host or url.query.get("host")
    if host not in _HERE and not str(host).startswith("/"):
        return None
    path = connection.exec_driver_sql(_STATEMENTS[connection.dialect.name]).scalar()
    return Path(path or _USUAL_DIRECTORY)
