"""The tables of OpenStack Placement, as its own revision of this id leaves them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "a082b8bb98d0"
down_revision = None
branch_labels = None
depends_on = None


# MySQL commits each statement here by itself: a run that was interrupted leaves some tables, and
# the next one goes on from there.


def _table(name: str, *items: sa.schema.SchemaItem) -> None:
    if not sa.inspect(op.get_bind()).has_table(name):
        op.create_table(
            name, sa.Column("created_at", sa.DateTime), sa.Column("updated_at", sa.DateTime), *items
        )


def _index(name: str, table: str, columns: list[str]) -> None:
    present = {index["name"] for index in sa.inspect(op.get_bind()).get_indexes(table)}
    if name not in present:
        op.create_index(name, table, columns)


def _id() -> sa.Column[int]:
    return sa.Column("id", sa.Integer, primary_key=True, nullable=False)


def upgrade() -> None:
    _table(
        "allocations",
        _id(),
        sa.Column("resource_provider_id", sa.Integer, nullable=False),
        sa.Column("consumer_id", sa.String(36), nullable=False),
        sa.Column("resource_class_id", sa.Integer, nullable=False),
        sa.Column("used", sa.Integer, nullable=False),
    )
    _index(
        "allocations_resource_provider_class_used_idx",
        "allocations",
        ["resource_provider_id", "resource_class_id", "used"],
    )
    _index("allocations_resource_class_id_idx", "allocations", ["resource_class_id"])
    _index("allocations_consumer_id_idx", "allocations", ["consumer_id"])

    _table(
        "consumer_types",
        _id(),
        sa.Column("name", sa.String(255), nullable=False),
        sa.UniqueConstraint("name", name="uniq_consumer_types0name"),
    )

    _table(
        "consumers",
        _id(),
        sa.Column("uuid", sa.String(36), nullable=False),
        sa.Column("project_id", sa.Integer, nullable=False),
        sa.Column("user_id", sa.Integer, nullable=False),
        sa.Column("generation", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column(
            "consumer_type_id",
            sa.Integer,
            sa.ForeignKey("consumer_types.id", name="consumers_consumer_type_id_fkey"),
        ),
        sa.UniqueConstraint("uuid", name="uniq_consumers0uuid"),
    )
    _index("consumers_project_id_user_id_uuid_idx", "consumers", ["project_id", "user_id", "uuid"])
    _index("consumers_project_id_uuid_idx", "consumers", ["project_id", "uuid"])
    _index("consumers_consumer_type_id_idx", "consumers", ["consumer_type_id"])

    _table(
        "inventories",
        _id(),
        sa.Column("resource_provider_id", sa.Integer, nullable=False),
        sa.Column("resource_class_id", sa.Integer, nullable=False),
        sa.Column("total", sa.Integer, nullable=False),
        sa.Column("reserved", sa.Integer, nullable=False),
        sa.Column("min_unit", sa.Integer, nullable=False),
        sa.Column("max_unit", sa.Integer, nullable=False),
        sa.Column("step_size", sa.Integer, nullable=False),
        sa.Column("allocation_ratio", sa.Float, nullable=False),
        sa.UniqueConstraint(
            "resource_provider_id",
            "resource_class_id",
            name="uniq_inventories0resource_provider_resource_class",
        ),
    )
    _index("inventories_resource_class_id_idx", "inventories", ["resource_class_id"])

    _table(
        "placement_aggregates",
        _id(),
        sa.Column("uuid", sa.String(36)),
        sa.UniqueConstraint("uuid", name="uniq_placement_aggregates0uuid"),
    )

    for name in ("projects", "users"):
        _table(
            name,
            _id(),
            sa.Column("external_id", sa.String(255), nullable=False),
            sa.UniqueConstraint("external_id", name=f"uniq_{name}0external_id"),
        )

    for name in ("resource_classes", "traits"):
        _table(
            name,
            _id(),
            sa.Column("name", sa.String(255), nullable=False),
            sa.UniqueConstraint("name", name=f"uniq_{name}0name"),
        )

    _table(
        "resource_provider_aggregates",
        sa.Column("resource_provider_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("aggregate_id", sa.Integer, primary_key=True, autoincrement=False),
    )
    _index(
        "resource_provider_aggregates_aggregate_id_idx",
        "resource_provider_aggregates",
        ["aggregate_id"],
    )

    _table(
        "resource_providers",
        _id(),
        sa.Column("uuid", sa.String(36), nullable=False),
        sa.Column("name", sa.String(200)),
        sa.Column("generation", sa.Integer),
        sa.Column("root_provider_id", sa.Integer, sa.ForeignKey("resource_providers.id")),
        sa.Column("parent_provider_id", sa.Integer, sa.ForeignKey("resource_providers.id")),
        sa.UniqueConstraint("uuid", name="uniq_resource_providers0uuid"),
        sa.UniqueConstraint("name", name="uniq_resource_providers0name"),
    )
    for column in ("root_provider_id", "parent_provider_id"):
        _index(f"resource_providers_{column}_idx", "resource_providers", [column])

    _table(
        "resource_provider_traits",
        sa.Column("trait_id", sa.Integer, sa.ForeignKey("traits.id"), primary_key=True),
        sa.Column(
            "resource_provider_id",
            sa.Integer,
            sa.ForeignKey("resource_providers.id"),
            primary_key=True,
        ),
    )
    _index(
        "resource_provider_traits_resource_provider_trait_idx",
        "resource_provider_traits",
        ["resource_provider_id", "trait_id"],
    )


def downgrade() -> None:
    raise RuntimeError(
        f"Revision {revision} is the oldest one: below it there would be no tables and no data. "
        "To start afresh, drop the database."
    )
