"""Databases of OpenStack Placement go forward in place, keep all their data, and go back.

The dumps in `openstack/` are of databases that the published package 16.0.0 made and was then
filled through its API: a host with two NUMA children, a sharing pool, six consumers, and an
inventory lowered below its use.
"""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_DNS, uuid5

import pytest
import sqlalchemy as sa
from alembic.config import Config
from alembic.script import ScriptDirectory

from placement_server.store import audit, resource_classes
from placement_server.store.allocations import allocations, usages
from placement_server.store.connection.options import StoreOptions
from placement_server.store.engine import create_engines
from placement_server.store.errors import CapacityExceeded, ProviderNotFound
from placement_server.store.providers import aggregates, inventory_rows, providers, traits
from placement_server.store.schema import migration, revision
from placement_server.store.store import Store
from placement_server.store.tables import metadata
from tests.fixtures.allocations import new_uuid
from tests.integration.store.conftest import OPTIONS, set_of
from tests.integration.store.published_dumps import load

SYNCED = StoreOptions(sqlite_synchronous=False, connect_tries=1, sync_on_startup=True)


def name(of: str) -> str:
    return str(uuid5(NAMESPACE_DNS, of))


@pytest.fixture
def openstack_url(database_url: str) -> str:
    load(database_url)
    return database_url


def contents(url: str) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all tables of OpenStack Placement, by table."""
    engine = sa.create_engine(url)
    reflected = sa.MetaData()
    reflected.reflect(engine)
    ours = {"agent_reports", "changes", "past_changes", "use_samples", "alembic_version"}
    with engine.connect() as connection:
        rows = {
            table.name: sorted(
                (tuple(row) for row in connection.execute(sa.select(*_their_columns(table)))),
                key=repr,
            )
            for table in reflected.sorted_tables
            if table.name not in ours
        }
    engine.dispose()
    return rows


def _their_columns(table: sa.Table) -> list[sa.Column[Any]]:
    ours = {"capacity", "used"} if table.name == "inventories" else set()
    return [column for column in table.c if column.name not in ours]


def structure(url: str) -> dict[str, Any]:
    """Tables, columns, keys and indexes, as the database tells them."""
    engine = sa.create_engine(url)
    inspector = sa.inspect(engine)
    result: dict[str, Any] = {}
    for table in inspector.get_table_names():
        result[table] = {
            "columns": {
                column["name"]: (str(column["type"]).split(" COLLATE")[0], column["nullable"])
                for column in inspector.get_columns(table)
            },
            "key": inspector.get_pk_constraint(table)["constrained_columns"],
            "unique": sorted(
                (unique["name"] or "", tuple(unique["column_names"]))
                for unique in inspector.get_unique_constraints(table)
            ),
            "indexes": sorted(
                (str(index["name"]), tuple(index["column_names"]), bool(index["unique"]))
                for index in inspector.get_indexes(table)
            ),
            "foreign": sorted(
                (tuple(key["constrained_columns"]), key["referred_table"])
                for key in inspector.get_foreign_keys(table)
            ),
        }
    engine.dispose()
    return result


def test_our_first_revision_makes_the_tables_of_openstack_placement(
    openstack_url: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    theirs = structure(openstack_url)
    family = sa.make_url(openstack_url).get_backend_name()
    if family == "sqlite":
        ours_url = f"sqlite:///{tmp_path / 'ours.db'}"
    else:
        ours_url = openstack_url
        engine = sa.create_engine(openstack_url)
        reflected = sa.MetaData()
        reflected.reflect(engine)
        reflected.drop_all(engine)
        engine.dispose()
    engines = create_engines(ours_url, OPTIONS)
    migration.upgrade(engines.writer, revision.OPENSTACK_REVISION)
    engines.dispose()
    assert structure(ours_url) == theirs


def test_a_database_of_openstack_placement_keeps_all_its_data_going_forward_and_back(
    openstack_url: str,
) -> None:
    before_rows, before_structure = contents(openstack_url), structure(openstack_url)
    engines = create_engines(openstack_url, OPTIONS)
    assert revision.current_revision(engines.reader) == revision.OPENSTACK_REVISION
    for _ in range(2):
        migration.upgrade(engines.writer)
        revision.require_newest(engines.reader)
        assert contents(openstack_url) == before_rows
        migration.downgrade(engines.writer, revision.OPENSTACK_REVISION)
        assert contents(openstack_url) == before_rows
        assert structure(openstack_url) == before_structure
    engines.dispose()


def test_a_database_of_openstack_placement_is_served_in_place(openstack_url: str) -> None:
    store = Store.open(openstack_url, options=SYNCED)
    store.synchronise_standard_names()
    assert store.read(audit.audit) == []
    host, pool, numa = name("host"), name("pool"), [name("numa0"), name("numa1")]

    tree = {p.uuid: p for p in store.read(providers.find, in_tree=host)}
    assert tree.keys() == {host, *numa}
    assert tree[numa[0]].parent_uuid == host
    assert tree[numa[0]].name == "host numa0 \u2603"
    assert store.read(usages.of_provider, host)[1] == {"DISK_GB": 100, "CUSTOM_LICENCE": 1}
    assert store.read(usages.of_provider, numa[0])[1] == {"VCPU": 12, "MEMORY_MB": 1920}
    assert store.read(usages.of_provider, pool)[1] == {"DISK_GB": 60}
    record = store.read(inventory_rows.of_provider, numa[0])[1]["VCPU"].record
    assert record.allocation_ratio == pytest.approx(16.1)
    assert [t.name for t in store.read(traits.of_provider, pool)[1]] == [
        "MISC_SHARES_VIA_AGGREGATE",
        "CUSTOM_GOLD",
    ]
    assert store.read(aggregates.of_provider, pool)[1] == [name("agg")]
    consumer, _ = store.read(allocations.of_consumer, name("c0"))
    assert consumer is not None
    assert (consumer.generation, consumer.consumer_type) == (1, "MIGRATION")

    # 60 GB are left of the host's disk and 100 in use: it may stay so, and not grow
    old, amounts = name("old"), {"DISK_GB": 100, "CUSTOM_LICENCE": 1}
    store.write(allocations.write, [set_of(old, {host: amounts}, 1)])
    with pytest.raises(CapacityExceeded):
        store.write(allocations.write, [set_of(new_uuid(), {host: {"DISK_GB": 1}}, None)])
    # 12 CPUs at a ratio of 16.1 are 193.2
    free = 193 - 12
    store.write(allocations.write, [set_of(new_uuid(), {numa[0]: {"VCPU": free}}, None)])
    with pytest.raises(CapacityExceeded):
        store.write(allocations.write, [set_of(new_uuid(), {numa[0]: {"VCPU": 1}}, None)])
    assert store.read(audit.audit) == []
    store.close()


def test_the_newest_revision_is_what_the_tables_module_says(database_url: str) -> None:
    store = Store.open(database_url, options=SYNCED)
    reflected = sa.MetaData()
    reflected.reflect(store.engine)
    found = {t.name: {c.name: c.nullable for c in t.c} for t in reflected.sorted_tables}
    del found["alembic_version"]
    assert found == {t.name: {c.name: c.nullable for c in t.c} for t in metadata.sorted_tables}
    store.close()


def test_many_workers_that_start_on_an_empty_database_do_not_race(database_url: str) -> None:
    def start(_: int) -> int:
        store = Store.open(database_url, options=SYNCED)
        store.synchronise_standard_names()
        class_count = len(store.read(resource_classes.list_all))
        store.close()
        return class_count

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(start, range(8))) == {21}


def test_an_interrupted_first_sync_on_mysql_is_taken_up_again(mariadb_url: str) -> None:
    engines = create_engines(mariadb_url, OPTIONS)
    migration.upgrade(engines.writer, revision.OPENSTACK_REVISION)
    with engines.writer.begin() as connection:
        connection.exec_driver_sql("DELETE FROM alembic_version")
        for table in ("resource_provider_traits", "traits", "users"):
            connection.exec_driver_sql(f"DROP TABLE {table}")
        connection.exec_driver_sql("DROP INDEX allocations_consumer_id_idx ON allocations")
    migration.upgrade(engines.writer)
    engines.dispose()
    store = Store.open(mariadb_url, options=OPTIONS)
    store.synchronise_standard_names()
    indexes = {index["name"] for index in sa.inspect(store.engine).get_indexes("allocations")}
    assert "allocations_consumer_id_idx" in indexes
    store.close()


def test_text_is_compared_exactly_on_mariadb_too(mariadb_url: str) -> None:
    load(mariadb_url)
    store = Store.open(mariadb_url, options=SYNCED)
    for text in ("Name", "name", "name "):
        store.write(providers.create, uuid=new_uuid(), name=text)
    with pytest.raises(ProviderNotFound):
        store.read(providers.get, name("host").upper())
    store.close()


def test_the_schema_that_is_demanded_is_the_one_that_the_migrations_make() -> None:
    config = Config()
    config.set_main_option("script_location", "placement_server.store:migrations")
    scripts = ScriptDirectory.from_config(config)
    assert scripts.get_heads() == [revision.NEWEST_REVISION]
    assert tuple(script.revision for script in scripts.walk_revisions()) == revision.REVISIONS[::-1]


def test_a_worker_on_an_up_to_date_database_needs_no_alembic(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/placement.db"
    script = (
        "import sys\n"
        "from placement_server.store.connection.options import StoreOptions\n"
        "from placement_server.store.store import Store\n"
        f"Store.open({url!r}, options=StoreOptions(sync_on_startup=True)).close()\n"
        "print('alembic' in sys.modules)\n"
    )
    starts = [subprocess.check_output([sys.executable, "-c", script], text=True) for _ in range(2)]
    assert [start.split() for start in starts] == [["True"], ["False"]]
