"""Rows of the tables of placement, and the room that they and their indexes take."""

import sqlalchemy as sa

from placement_server.store.tables import metadata

MIB = 2**20


def rows(engine: sa.Engine) -> dict[str, int]:
    """The number of rows of each table."""
    with engine.connect() as connection:
        return {
            table.name: connection.execute(
                sa.select(sa.func.count()).select_from(table)
            ).scalar_one()
            for table in metadata.sorted_tables
        }


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


_POSTGRESQL = (
    "SELECT sum(pg_table_size(relid)), sum(pg_indexes_size(relid)) FROM pg_stat_user_tables"
)
_MYSQL = (
    "SELECT sum(data_length), sum(index_length) FROM information_schema.tables "
    "WHERE table_schema = database()"
)
