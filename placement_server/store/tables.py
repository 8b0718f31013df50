"""The tables, as the newest schema revision leaves them; the migrations make them from here.

The first twelve are OpenStack Placement's own at revision a082b8bb98d0, column by column. Ours are
`inventories.capacity`, `inventories.used` and the tables `changes`, `agent_reports`,
`use_samples` and `past_changes`.

    resource_providers 1-* inventories *-1 resource_classes
            | 1                  ^ (provider, class)
            *                    |
    (traits, aggregates)    allocations *-1 consumers *-1 (projects, users, consumer_types)

`allocations.consumer_id` is the consumer's uuid, not its id.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects import mysql

metadata = MetaData()

# SQLite assigns ids by itself for INTEGER PRIMARY KEY only.
_BIG_ID = BigInteger().with_variant(Integer, "sqlite")

# MySQL's FLOAT keeps 24 bits and returns six digits; the store computes with what it returns.
_RATIO = Float().with_variant(mysql.FLOAT(), "mysql", "mariadb")


def _times() -> tuple[Column[object], Column[object]]:
    return Column("created_at", DateTime), Column("updated_at", DateTime)


def _named_rows(table: str, column: str = "name") -> Table:
    return Table(
        table,
        metadata,
        *_times(),
        Column("id", Integer, primary_key=True),
        Column(column, String(255), nullable=False),
        UniqueConstraint(column, name=f"uniq_{table}0{column}"),
    )


resource_providers = Table(
    "resource_providers",
    metadata,
    *_times(),
    Column("id", Integer, primary_key=True),
    Column("uuid", String(36), nullable=False),
    Column("name", String(200)),
    Column("generation", Integer),
    Column("root_provider_id", Integer, ForeignKey("resource_providers.id")),
    Column("parent_provider_id", Integer, ForeignKey("resource_providers.id")),
    UniqueConstraint("uuid", name="uniq_resource_providers0uuid"),
    UniqueConstraint("name", name="uniq_resource_providers0name"),
    Index("resource_providers_root_provider_id_idx", "root_provider_id"),
    Index("resource_providers_parent_provider_id_idx", "parent_provider_id"),
)

resource_classes = _named_rows("resource_classes")

inventories = Table(
    "inventories",
    metadata,
    *_times(),
    Column("id", Integer, primary_key=True),
    Column("resource_provider_id", Integer, nullable=False),
    Column("resource_class_id", Integer, nullable=False),
    Column("total", Integer, nullable=False),
    Column("reserved", Integer, nullable=False),
    Column("min_unit", Integer, nullable=False),
    Column("max_unit", Integer, nullable=False),
    Column("step_size", Integer, nullable=False),
    Column("allocation_ratio", _RATIO, nullable=False),
    UniqueConstraint(
        "resource_provider_id",
        "resource_class_id",
        name="uniq_inventories0resource_provider_resource_class",
    ),
    Index("inventories_resource_class_id_idx", "resource_class_id"),
)

allocations = Table(
    "allocations",
    metadata,
    *_times(),
    Column("id", Integer, primary_key=True),
    Column("resource_provider_id", Integer, nullable=False),
    Column("consumer_id", String(36), nullable=False),
    Column("resource_class_id", Integer, nullable=False),
    Column("used", Integer, nullable=False),
    Index(
        "allocations_resource_provider_class_used_idx",
        "resource_provider_id",
        "resource_class_id",
        "used",
    ),
    Index("allocations_resource_class_id_idx", "resource_class_id"),
    Index("allocations_consumer_id_idx", "consumer_id"),
)

consumer_types = _named_rows("consumer_types")

projects = _named_rows("projects", "external_id")

users = _named_rows("users", "external_id")

consumers = Table(
    "consumers",
    metadata,
    *_times(),
    Column("id", Integer, primary_key=True),
    Column("uuid", String(36), nullable=False),
    Column("project_id", Integer, nullable=False),
    Column("user_id", Integer, nullable=False),
    Column("generation", Integer, nullable=False, server_default=text("0")),
    Column(
        "consumer_type_id",
        Integer,
        ForeignKey("consumer_types.id", name="consumers_consumer_type_id_fkey"),
    ),
    UniqueConstraint("uuid", name="uniq_consumers0uuid"),
    Index("consumers_project_id_user_id_uuid_idx", "project_id", "user_id", "uuid"),
    Index("consumers_project_id_uuid_idx", "project_id", "uuid"),
    Index("consumers_consumer_type_id_idx", "consumer_type_id"),
)

traits = _named_rows("traits")

resource_provider_traits = Table(
    "resource_provider_traits",
    metadata,
    *_times(),
    Column("trait_id", Integer, ForeignKey("traits.id"), primary_key=True),
    Column("resource_provider_id", Integer, ForeignKey("resource_providers.id"), primary_key=True),
    Index(
        "resource_provider_traits_resource_provider_trait_idx",
        "resource_provider_id",
        "trait_id",
    ),
)

placement_aggregates = Table(
    "placement_aggregates",
    metadata,
    *_times(),
    Column("id", Integer, primary_key=True),
    Column("uuid", String(36)),
    UniqueConstraint("uuid", name="uniq_placement_aggregates0uuid"),
)

resource_provider_aggregates = Table(
    "resource_provider_aggregates",
    metadata,
    *_times(),
    Column("resource_provider_id", Integer, primary_key=True, autoincrement=False),
    Column("aggregate_id", Integer, primary_key=True, autoincrement=False),
    Index("resource_provider_aggregates_aggregate_id_idx", "aggregate_id"),
)

openstack_metadata: Final = MetaData()
"""The tables of OpenStack Placement, without what is ours."""
for _table in metadata.sorted_tables:
    _table.to_metadata(openstack_metadata)


def capacity_columns() -> list[Column[int]]:
    """Return new columns for inventories: the largest use of each, and the present one."""
    return [
        Column(name, BigInteger, nullable=False, server_default=text("0"))
        for name in ("capacity", "used")
    ]


for _column in capacity_columns():
    inventories.append_column(_column)

# Change records: one row per write transaction, tree touched and kind. AUTOINCREMENT on SQLite, so
# that the id of a pruned row is never used again. The uuid is set where a write ends the tree.
changes = Table(
    "changes",
    metadata,
    Column("id", _BIG_ID, primary_key=True),
    Column("created_at", DateTime, nullable=False),
    Column("root_provider_id", Integer, nullable=False),
    Column("kind", SmallInteger, nullable=False),
    Column("write_id", BigInteger, nullable=False),
    Column("root_provider_uuid", String(36)),
    sqlite_autoincrement=True,
)

# The last report of the agent of each host. `silent_at` is when it has missed the next ones; NULL
# for an agent without a period. A notable one has a reason, or a bus that is away.
agent_reports = Table(
    "agent_reports",
    metadata,
    Column("root_provider_uuid", String(36), primary_key=True),
    Column("reported_at", DateTime, nullable=False),
    Column("silent_at", DateTime),
    Column("is_notable", SmallInteger, nullable=False),
    Column("document", Text, nullable=False),
)

# What the fleet had and used in a minute since 1970: used amount and capacity by resource class.
use_samples = Table(
    "use_samples",
    metadata,
    Column("minute", Integer, primary_key=True, autoincrement=False),
    Column("document", Text, nullable=False),
)

# What writes changed of one host and, where it is about one, of one consumer; the document has the
# entries. AUTOINCREMENT on SQLite, so that readers can go on from an id.
past_changes = Table(
    "past_changes",
    metadata,
    *_times(),
    Column("id", _BIG_ID, primary_key=True),
    Column("root_provider_id", Integer, nullable=False),
    Column("root_provider_uuid", String(36)),
    Column("consumer_id", String(36)),
    Column("request_id", String(64), nullable=False),
    Column("user_id", String(255), nullable=False),
    Column("document", Text, nullable=False),
    Index("past_changes_root_provider_id_idx", "root_provider_id", "id"),
    Index("past_changes_consumer_id_idx", "consumer_id", "id"),
    # Of the few rows with which a tree ended; MySQL has no index of some rows.
    Index(
        "past_changes_root_provider_uuid_idx",
        "root_provider_uuid",
        sqlite_where=text("root_provider_uuid IS NOT NULL"),
        postgresql_where=text("root_provider_uuid IS NOT NULL"),
    ),
    sqlite_autoincrement=True,
)
