"""The uuid of a root in the record of the change that ended its tree.

Readers of the feed of changes name trees by it. Older records stay without one: their trees, where
they do not exist any more, have no name.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "e61b8a0d4c37"
down_revision = "9b3e57d2f1c4"
branch_labels = None
depends_on = None


def upgrade() -> None:
    connection = op.get_bind()
    # MySQL commits each DDL statement: an interrupted run finds its own half-done work
    present = {column["name"] for column in sa.inspect(connection).get_columns("changes")}
    if "root_provider_uuid" not in present:
        op.add_column("changes", sa.Column("root_provider_uuid", sa.String(36)))


def downgrade() -> None:
    op.drop_column("changes", "root_provider_uuid")
