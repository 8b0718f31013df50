"""Exact comparison of text on MySQL and MariaDB, as on the other databases.

With the usual collations `A` equals `a` and trailing blanks do not count, so that two names
become one; with latin1 most names cannot be stored at all. OpenStack Placement works with
these tables as well, so going back changes nothing.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "9b3e57d2f1c4"
down_revision = "4d1f0c6b2a57"
branch_labels = None
depends_on = None

_TABLES = (
    "allocations",
    "consumer_types",
    "consumers",
    "placement_aggregates",
    "projects",
    "resource_classes",
    "resource_providers",
    "traits",
    "users",
)


def upgrade() -> None:
    connection = op.get_bind()
    if connection.dialect.name not in ("mysql", "mariadb"):
        return
    # the collations that do not pad with blanks have other names on either side
    mariadb = getattr(connection.dialect, "is_mariadb", False)
    exact = "utf8mb4_nopad_bin" if mariadb else "utf8mb4_0900_bin"
    for table in _TABLES:
        collations = connection.scalars(
            sa.text(
                "SELECT collation_name FROM information_schema.columns WHERE "
                "table_schema = database() AND table_name = :table AND collation_name IS NOT NULL"
            ),
            {"table": table},
        ).all()
        if set(collations) != {exact}:
            op.execute(f"ALTER TABLE {table} CONVERT TO CHARACTER SET utf8mb4 COLLATE {exact}")


def downgrade() -> None:
    """Change nothing: the older revision works with exact text as well."""
