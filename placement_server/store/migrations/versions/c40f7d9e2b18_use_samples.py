"""Samples of what the fleet has and uses, for the pages: bounded by what they cover, a week."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "c40f7d9e2b18"
down_revision = "5c7e0a9d81f2"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # MySQL commits each DDL statement: an interrupted run finds its own half-done work
    if "use_samples" in sa.inspect(op.get_bind()).get_table_names():
        return
    op.create_table(
        "use_samples",
        sa.Column("minute", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("document", sa.Text, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("use_samples")
