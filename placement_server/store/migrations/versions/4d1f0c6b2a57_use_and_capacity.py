"""Columns for the use and the capacity of each inventory, and the table of changes.

Both columns can be computed from the others, so going back loses nothing.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from placement_server.store.providers.capacity import usable

revision = "4d1f0c6b2a57"
down_revision = "a082b8bb98d0"
branch_labels = None
depends_on = None

_BATCH = 5000

_INVENTORIES = sa.table(
    "inventories",
    sa.column("id", sa.Integer),
    sa.column("resource_provider_id", sa.Integer),
    sa.column("resource_class_id", sa.Integer),
    sa.column("total", sa.Integer),
    sa.column("reserved", sa.Integer),
    sa.column("allocation_ratio", sa.Float),
    sa.column("capacity", sa.BigInteger),
    sa.column("used", sa.BigInteger),
)
_ALLOCATIONS = sa.table(
    "allocations",
    sa.column("resource_provider_id", sa.Integer),
    sa.column("resource_class_id", sa.Integer),
    sa.column("used", sa.Integer),
)


def upgrade() -> None:
    connection = op.get_bind()
    # MySQL commits each DDL statement: an interrupted run finds its own half-done work
    present = {column["name"] for column in sa.inspect(connection).get_columns("inventories")}
    for name in ("capacity", "used"):
        if name not in present:
            op.add_column(
                "inventories",
                sa.Column(name, sa.BigInteger, nullable=False, server_default=sa.text("0")),
            )
    if not sa.inspect(connection).has_table("changes"):
        op.create_table(
            "changes",
            sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
            sa.Column("created_at", sa.DateTime, nullable=False),
            sa.Column("root_provider_id", sa.Integer, nullable=False),
            sa.Column("kind", sa.SmallInteger, nullable=False),
            sa.Column("write_id", sa.BigInteger, nullable=False),
            sqlite_autoincrement=True,
        )
    _fill_capacity(connection)
    _fill_used(connection)


def _fill_capacity(connection: sa.Connection) -> None:
    """Compute the capacities in Python, like those of every later write: SQL would round."""
    update = (
        sa.update(_INVENTORIES)
        .where(_INVENTORIES.c.id == sa.bindparam("the_id"))
        .values(capacity=sa.bindparam("the_capacity"))
    )
    last = 0
    while True:
        rows = connection.execute(
            sa.select(
                _INVENTORIES.c.id,
                _INVENTORIES.c.total,
                _INVENTORIES.c.reserved,
                _INVENTORIES.c.allocation_ratio,
            )
            .where(_INVENTORIES.c.id > last)
            .order_by(_INVENTORIES.c.id)
            .limit(_BATCH)
        ).all()
        if not rows:
            return
        connection.execute(
            update,
            [{"the_id": row.id, "the_capacity": usable(*row[1:])} for row in rows],
        )
        last = rows[-1].id


def _fill_used(connection: sa.Connection) -> None:
    total = (
        sa.select(sa.func.coalesce(sa.func.sum(_ALLOCATIONS.c.used), 0))
        .where(
            _ALLOCATIONS.c.resource_provider_id == _INVENTORIES.c.resource_provider_id,
            _ALLOCATIONS.c.resource_class_id == _INVENTORIES.c.resource_class_id,
        )
        .scalar_subquery()
    )
    connection.execute(sa.update(_INVENTORIES).values(used=total))


def downgrade() -> None:
    op.drop_table("changes")
    op.drop_column("inventories", "used")
    op.drop_column("inventories", "capacity")
