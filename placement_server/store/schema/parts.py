"""Parts of the schema as migrations make them.

MySQL commits each of their statements by itself: a run that was interrupted leaves some parts, and
the next one goes on from there.
"""

from __future__ import annotations

import sqlalchemy as sa


def create_missing(connection: sa.Connection, metadata: sa.MetaData) -> None:
    """Create the tables and the indexes that a database lacks."""
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
