"""The last report of the agent of each host.

An agent sends it with the read of its tree. A row is written again every time, so the table has at
most one for each root provider.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from placement_server.store.schema import exact_text

revision = "5c7e0a9d81f2"
down_revision = "e61b8a0d4c37"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # MySQL commits each DDL statement: an interrupted run finds its own half-done work
    if not sa.inspect(op.get_bind()).has_table("agent_reports"):
        op.create_table(
            "agent_reports",
            sa.Column("root_provider_uuid", sa.String(36), primary_key=True),
            sa.Column("reported_at", sa.DateTime, nullable=False),
            sa.Column("silent_at", sa.DateTime),
            sa.Column("is_notable", sa.SmallInteger, nullable=False),
            sa.Column("document", sa.Text, nullable=False),
        )
    exact_text.convert(op.get_bind(), "agent_reports")


def downgrade() -> None:
    op.drop_table("agent_reports")
