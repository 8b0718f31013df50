"""The tables of OpenStack Placement, as its own revision of this id leaves them."""

from __future__ import annotations

from alembic import op

from placement_server.store.schema import migration
from placement_server.store.tables import openstack_metadata

revision = "a082b8bb98d0"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    migration.create_missing(op.get_bind(), openstack_metadata)


def downgrade() -> None:
    raise RuntimeError(
        f"Revision {revision} is the oldest one: below it there would be no tables and no data. "
        "To start afresh, drop the database."
    )
