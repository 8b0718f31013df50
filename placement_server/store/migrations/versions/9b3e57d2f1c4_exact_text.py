"""Exact comparison of text on MySQL and MariaDB, as on the other databases.

With the usual collations `A` equals `a` and trailing blanks do not count, so that two names
become one; with latin1 most names cannot be stored at all. OpenStack Placement works with
these tables as well, so going back changes nothing.
"""

from __future__ import annotations

from alembic import op

from placement_server.store.schema import exact_text

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
    exact_text.convert(op.get_bind(), *_TABLES)


def downgrade() -> None:
    """Change nothing: the older revision works with exact text as well."""
