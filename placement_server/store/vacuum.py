"""Room of deleted rows, given back to the system by the database."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine

from placement_server.store.errors import StoreUnavailable
from placement_server.store.tables import metadata
from placement_server.store.transactions.transaction import translate_failures


def vacuum(engine: Engine) -> list[str]:
    """Rewrite or clean the tables, as the database does it; requests go on meanwhile.

    On SQLite writers wait until it is done.

    :returns: the tables.
    :raises StoreUnavailable: the database did not do it, or not for all tables.
    """
    tables = sorted(metadata.tables)
    family = engine.dialect.name
    statement = {
        "sqlite": "VACUUM",
        "postgresql": f"VACUUM (ANALYZE) {', '.join(tables)}",
    }.get(family, f"OPTIMIZE TABLE {', '.join(tables)}")
    # none of them is allowed in a transaction
    options: dict[str, Any] = (
        {"store_begin": None} if family == "sqlite" else {"isolation_level": "AUTOCOMMIT"}
    )
    doing = "giving room back"
    with (
        translate_failures(doing),
        engine.connect().execution_options(**options) as connection,
    ):
        result = connection.exec_driver_sql(statement)
        rows = result.all() if result.returns_rows else []
    # MySQL answers with rows, its errors among them
    errors = [f"{table}: {text}" for table, _, kind, text in rows if kind.lower() == "error"]
    if errors:
        raise StoreUnavailable(f"The database failed while {doing}: {'; '.join(errors)}")
    return tables
