"""Exact comparison of the text of tables on MySQL and MariaDB, as on the other databases."""

from __future__ import annotations

import sqlalchemy as sa


def convert(connection: sa.Connection, *tables: str) -> None:
    """Give tables a collation in which case and trailing blanks count, and any character.

    Elsewhere it is so already.
    """
    if connection.dialect.name not in ("mysql", "mariadb"):
        return
    # the collations that do not pad with blanks have other names on either side
    mariadb = getattr(connection.dialect, "is_mariadb", False)
    exact = "utf8mb4_nopad_bin" if mariadb else "utf8mb4_0900_bin"
    for table in tables:
        collations = connection.scalars(
            sa.text(
                "SELECT collation_name FROM information_schema.columns WHERE "
                "table_schema = database() AND table_name = :table AND collation_name IS NOT NULL"
            ),
            {"table": table},
        ).all()
        if set(collations) != {exact}:
            connection.exec_driver_sql(
                f"ALTER TABLE {table} CONVERT TO CHARACTER SET utf8mb4 COLLATE {exact}"
            )
