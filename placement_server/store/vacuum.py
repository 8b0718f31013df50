"""Room of deleted rows, given back to the system by the database."""

from __future__ import annotations

from sqlalchemy import Engine

from placement_server.store.tables import metadata


def vacuum(engine: Engine) -> list[str]:
    """Rewrite or clean the tables, as the database does it; requests go on meanwhile.

    On SQLite writers wait until it is done.

    :returns: the tables.
    """
    tables = sorted(metadata.tables)
    if engine.dialect.name == "sqlite":
        # SQLAlchemy's connections of this engine begin a transaction, in which it is refused
        connection = engine.raw_connection()
        try:
            connection.cursor().execute("VACUUM")
        finally:
            connection.close()
        return tables
    if engine.dialect.name == "postgresql":
        statement = f"VACUUM (ANALYZE) {', '.join(tables)}"
    else:
        statement = f"OPTIMIZE TABLE {', '.join(tables)}"
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as autocommit:
        # MySQL answers with rows
        autocommit.exec_driver_sql(statement).close()
    return tables
