"""Changes that writes made, and who made them, kept for some days."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from placement_server.store.schema import exact_text

revision = "8d21f5b06c93"
down_revision = "c40f7d9e2b18"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # MySQL commits each DDL statement: an interrupted run finds its own half-done work
    if not sa.inspect(op.get_bind()).has_table("past_changes"):
        _create()
    exact_text.convert(op.get_bind(), "past_changes")


def _create() -> None:
    op.create_table(
        "past_changes",
        sa.Column("created_at", sa.DateTime),
        sa.Column("updated_at", sa.DateTime),
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        sa.Column("root_provider_id", sa.Integer, nullable=False),
        sa.Column("root_provider_uuid", sa.String(36)),
        sa.Column("consumer_id", sa.String(36)),
        sa.Column("request_id", sa.String(64), nullable=False),
        sa.Column("user_id", sa.String(255), nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.Index("past_changes_root_provider_id_idx", "root_provider_id", "id"),
        sa.Index("past_changes_consumer_id_idx", "consumer_id", "id"),
        sqlite_autoincrement=True,
    )


def downgrade() -> None:
    op.drop_table("past_changes")
