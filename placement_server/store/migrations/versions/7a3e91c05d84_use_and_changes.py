"""The use and the capacity of each inventory, and the tables that OpenStack Placement lacks.

On MySQL and MariaDB text is compared exactly from here on, as on the other databases.

Going back loses nothing of OpenStack Placement: use and capacity can be computed from other
columns, and it works with exact text as well, which stays.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from placement_server.store.providers.capacity import usable
from placement_server.store.schema import migration
from placement_server.store.tables import (
    allocations,
    capacity_columns,
    inventories,
    metadata,
    openstack_metadata,
)

revision = "7a3e91c05d84"
down_revision = "a082b8bb98d0"
branch_labels = None
depends_on = None

_BATCH = 5000

_I = inventories.c
_A = allocations.c


def upgrade() -> None:
    connection = op.get_bind()
    present = {column["name"] for column in sa.inspect(connection).get_columns("inventories")}
    for column in capacity_columns():
        if column.name not in present:
            op.add_column("inventories", column)
    migration.create_missing(connection, metadata)
    migration.compare_exactly(connection, metadata)
    _fill_capacity(connection)
    total = (
        sa.select(sa.func.coalesce(sa.func.sum(_A.used), 0))
        .where(
            _A.resource_provider_id == _I.resource_provider_id,
            _A.resource_class_id == _I.resource_class_id,
        )
        .scalar_subquery()
    )
    connection.execute(sa.update(inventories).values(used=total))


def _fill_capacity(connection: sa.Connection) -> None:
    """Compute the capacities in Python, like those of every later write: SQL would round."""
    update = (
        sa.update(inventories)
        .where(_I.id == sa.bindparam("the_id"))
        .values(capacity=sa.bindparam("the_capacity"))
    )
    last = 0
    while True:
        rows = connection.execute(
            sa.select(_I.id, _I.total, _I.reserved, _I.allocation_ratio)
            .where(_I.id > last)
            .order_by(_I.id)
            .limit(_BATCH)
        ).all()
        if not rows:
            return
        connection.execute(
            update, [{"the_id": row.id, "the_capacity": usable(*row[1:])} for row in rows]
        )
        last = rows[-1].id


def downgrade() -> None:
    for table in sorted(metadata.tables.keys() - openstack_metadata.tables.keys()):
        op.drop_table(table)
    for column in capacity_columns():
        op.drop_column("inventories", column.name)
