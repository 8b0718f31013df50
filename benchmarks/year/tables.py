"""Rows of the tables of placement, the room that they and their indexes take, and their server."""

from pathlib import Path

import sqlalchemy as sa

from placement_server.store.tables import metadata

MIB = 2**20


def rows(engine: sa.Engine) -> dict[str, int]:
    """The number of rows of each table."""
    counts = [
        sa.select(sa.func.count()).select_from(table).scalar_subquery().label(table.name)
        for table in metadata.sorted_tables
    ]
    with engine.connect() as connection:
        return dict(connection.execute(sa.select(*counts)).one()._mapping)


def sizes(engine: sa.Engine) -> dict[str, float]:
    """MiB of the tables and, where the database knows them, of their indexes."""
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            pages, free, size = (
                connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
                for name in ("page_count", "freelist_count", "page_size")
            )
            return {"file": pages * size / MIB, "used pages": (pages - free) * size / MIB}
        statement = _POSTGRESQL if engine.dialect.name == "postgresql" else _MYSQL
        tables, indexes = connection.exec_driver_sql(statement).one()
        return {"tables": float(tables) / MIB, "indexes": float(indexes) / MIB}


def vacuum_every(engine: sa.Engine, seconds: int) -> None:
    """Let autovacuum look every so many seconds for tables that need it; PostgreSQL only.

    Its default is a minute: 17 days of a year that lasts 22 minutes. A second, the least, is more
    than six hours.
    """
    if engine.dialect.name != "postgresql":
        return
    options = {"isolation_level": "AUTOCOMMIT"}
    with engine.connect().execution_options(**options) as connection:
        connection.exec_driver_sql(f"ALTER SYSTEM SET autovacuum_naptime = {seconds}")
        connection.exec_driver_sql("SELECT pg_reload_conf()")


def server_pid(engine: sa.Engine) -> int | None:
    """The process of a database server on this machine; None for a file."""
    if engine.dialect.name == "sqlite":
        return None
    with engine.connect() as connection:
        if engine.dialect.name == "postgresql":
            data = Path(connection.exec_driver_sql("SHOW data_directory").scalar_one())
            file = data / "postmaster.pid"
        else:
            file = Path(connection.exec_driver_sql("SELECT @@pid_file").scalar_one())
    return int(file.read_text().split()[0])


_POSTGRESQL = (
    "SELECT sum(pg_table_size(relid)), sum(pg_indexes_size(relid)) FROM pg_stat_user_tables"
)
_MYSQL = (
    "SELECT sum(data_length), sum(index_length) FROM information_schema.tables "
    "WHERE table_schema = database()"
)
