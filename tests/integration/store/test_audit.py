"""The audit finds each broken invariant and mends what is derived, on every database."""

from __future__ import annotations

from typing import Any

import pytest

from placement_server.candidates.index.follower import IndexFollower
from placement_server.store import audit, data_migrations
from placement_server.store.allocations import allocations
from placement_server.store.changes import changes
from placement_server.store.providers import inventory_rows, providers
from placement_server.store.records import InventoryRecord
from placement_server.store.store import Store
from placement_server.store.transaction import STRUCTURE
from tests.integration.candidates.follower_worker import content
from tests.integration.store.conftest import (
    generation_of,
    new_provider,
    new_uuid,
    opened,
    restock,
    sabotage,
    set_of,
    stock,
    use_of,
)
from tests.integration.store.interleaving import listening


@pytest.fixture
def host(store: Store) -> str:
    """A host with a child, and a consumer on both."""
    host = new_provider(store, {"VCPU": 4})
    child = new_provider(store, {"VGPU": 2}, parent=host)
    store.write(
        allocations.write, [set_of(new_uuid(), {host: {"VCPU": 3}, child: {"VGPU": 1}}, None)]
    )
    assert store.read(audit.audit) == []
    return host


def problems(store: Store) -> dict[str, bool]:
    return {problem.check: problem.mendable for problem in store.read(audit.audit)}


PROVIDER = "(SELECT id FROM resource_providers WHERE uuid = :uuid)"

MENDABLE = {
    "use": f"UPDATE inventories SET used = used + 7 WHERE resource_provider_id = {PROVIDER}",
    "use by nobody": "UPDATE inventories SET used = 1 WHERE resource_provider_id = "
    "(SELECT id FROM resource_providers WHERE uuid = :unused)",
    "capacity": f"UPDATE inventories SET capacity = 99 WHERE resource_provider_id = {PROVIDER}",
    "consumer": "INSERT INTO consumers (uuid, project_id, user_id, generation) "
    "SELECT :other, project_id, user_id, 3 FROM consumers LIMIT 1",
    "stray inventory": "INSERT INTO inventories (resource_provider_id, resource_class_id, total, "
    "reserved, min_unit, max_unit, step_size, allocation_ratio, capacity, used) "
    "VALUES (999999, 0, 4, 0, 1, 4, 1, 1.0, 4, 0)",
    "stray aggregate": "INSERT INTO resource_provider_aggregates "
    "(resource_provider_id, aggregate_id) VALUES (999999, 1)",
    "stray membership": "INSERT INTO resource_provider_aggregates "
    f"(resource_provider_id, aggregate_id) VALUES ({PROVIDER}, 999999)",
    "tree of its own": "UPDATE resource_providers SET root_provider_id = id "
    "WHERE parent_provider_id IS NOT NULL AND root_provider_id = "
    "(SELECT id FROM (SELECT id FROM resource_providers WHERE uuid = :uuid) host)",
    "tree": "UPDATE resource_providers SET root_provider_id = NULL WHERE uuid = :uuid",
}


@pytest.mark.parametrize("check", MENDABLE)
def test_derived_data_is_found_wrong_and_mended(store: Store, host: str, check: str) -> None:
    unused = new_provider(store, {"VCPU": 4})
    sabotage(store, MENDABLE[check], uuid=host, other=new_uuid(), unused=unused)
    assert problems(store) == {check.split()[0]: True}
    follower = IndexFollower(store)
    follower.index()
    store.write(audit.repair)
    assert store.read(audit.audit) == []
    assert content(follower.index()) == content(IndexFollower(store).index())
    assert use_of(store, host) == {"VCPU": 3}
    assert store.read(inventory_rows.of_provider, host)[1]["VCPU"].record.total == 4


def test_a_tree_that_is_put_below_its_parent_has_its_name_in_the_feed(
    store: Store, host: str
) -> None:
    """Also when the provider is gone, and nothing else leads from the id of the root to it."""
    child = new_provider(store, parent=host)
    sabotage(store, MENDABLE["tree of its own"], uuid=host)
    stock(store, child, 0, {"VCPU": 1})
    store.write(audit.repair)
    store.write(providers.delete, child)
    read = store.read(changes.page, 0, 2**40, kinds=[STRUCTURE], roots=[child], most=9)
    assert {record.root_uuid for record in read} == {child}


# on SQLite nobody else writes during a repair
@pytest.mark.parametrize("module_database_url", ["postgresql", "mariadb"], indirect=True)
def test_a_record_that_is_claimed_with_during_the_repair_stays(
    store: Store, host: str, module_database_url: str
) -> None:
    consumer = new_uuid()
    sabotage(store, MENDABLE["consumer"], other=consumer)
    claimed: list[str] = []

    def claim_before_the_lock(*event: Any) -> None:
        if "FOR UPDATE" in event[2] and not claimed:
            claimed.append(consumer)
            other.write(allocations.write, [set_of(consumer, {host: {"VCPU": 1}}, None)])

    with (
        opened(module_database_url) as other,
        listening(store, "before_cursor_execute", claim_before_the_lock),
    ):
        store.write(audit.repair)
    assert claimed
    assert store.read(audit.audit) == []
    assert use_of(store, host) == {"VCPU": 4}


def test_what_needs_a_decision_is_reported_and_left_alone(store: Store, host: str) -> None:
    sabotage(
        store,
        "INSERT INTO allocations (resource_provider_id, consumer_id, resource_class_id, used) "
        "SELECT id, :other, 2, 5 FROM resource_providers WHERE uuid = :uuid",
        uuid=host,
        other="someone",
    )
    assert problems(store) == {"allocation": False, "consumer": False}
    store.write(audit.repair)
    assert problems(store) == {"allocation": False, "consumer": False}
    # a data migration gives the consumer its record, a delete takes the allocation away
    batch = store.write(
        data_migrations.create_incomplete_consumers, 50, project_id="p", user_id="u"
    )
    assert batch == 1
    store.write(allocations.delete, "someone")
    assert store.read(audit.audit) == []


@pytest.mark.parametrize("column", ["project_id", "user_id"])
def test_a_consumer_whose_project_or_user_is_gone_is_reported_until_it_is_rewritten(
    store: Store, host: str, column: str
) -> None:
    consumer = new_uuid()
    claim = set_of(consumer, {host: {"VCPU": 1}})
    store.write(allocations.write, [claim])
    sabotage(store, f"UPDATE consumers SET {column} = 999999 WHERE uuid = :uuid", uuid=consumer)
    store.write(audit.repair)
    [problem] = store.read(audit.audit)
    assert (problem.check, problem.mendable) == ("consumer", False)
    assert consumer in str(problem)
    assert "999999" in str(problem)
    store.write(allocations.write, [claim])
    assert store.read(audit.audit) == []


UNKNOWN_CLASS = {
    "inventories": (
        "INSERT INTO inventories (resource_provider_id, resource_class_id, total, reserved, "
        "min_unit, max_unit, step_size, allocation_ratio, capacity, used) "
        f"VALUES ({PROVIDER}, 9999, 4, 0, 1, 4, 1, 1.0, 4, 0)"
    ),
    "allocations": (
        f"UPDATE allocations SET resource_class_id = 9999 WHERE resource_provider_id = {PROVIDER}"
    ),
}


@pytest.mark.parametrize("table", UNKNOWN_CLASS)
def test_a_class_that_does_not_exist_is_reported_and_left_alone(
    store: Store, host: str, table: str
) -> None:
    sabotage(store, UNKNOWN_CLASS[table], uuid=host)
    try:
        (found,) = (finding for finding in store.read(audit.audit) if finding.check == "class")
        assert not found.mendable
        assert table in str(found)
        assert "9999" in str(found)
        assert host in str(found)
        store.write(audit.repair)
        assert problems(store)["class"] is False
    finally:
        sabotage(
            store,
            "DELETE FROM inventories WHERE resource_class_id = 9999",
            "UPDATE allocations SET resource_class_id = 0 WHERE resource_class_id = 9999",
        )
        store.write(audit.repair)
    assert store.read(audit.audit) == []


def test_a_circle_of_parents_is_reported_and_taken_apart_through_the_api(store: Store) -> None:
    a = new_provider(store)
    b = new_provider(store, parent=a)
    sabotage(
        store,
        "UPDATE resource_providers SET parent_provider_id = "
        "(SELECT id FROM (SELECT id FROM resource_providers WHERE uuid = :b) x) WHERE uuid = :a",
        a=a,
        b=b,
    )
    assert problems(store) == {"tree": False}
    store.write(providers.update, a, name=f"name-{a}", parent_uuid=None, reparenting_allowed=True)
    assert store.read(audit.audit) == []


def test_use_beyond_capacity_is_told_and_is_no_problem(store: Store, host: str) -> None:
    restock(store, host, "VCPU", InventoryRecord(3), generation_of(store, host))
    assert not any(host in line for line in store.read(audit.over_capacity))
    restock(store, host, "VCPU", InventoryRecord(1), generation_of(store, host))
    assert store.read(audit.audit) == []
    assert any(host in line and "3 of 1" in line for line in store.read(audit.over_capacity))


def test_providers_without_a_root_get_the_top_of_their_tree(store: Store, host: str) -> None:
    tree = {p.uuid for p in store.read(providers.find, in_tree=host)}
    sabotage(store, "UPDATE resource_providers SET root_provider_id = NULL")
    everything = store.read(data_migrations.count_rootless)
    assert store.write(data_migrations.set_root_provider_ids, 1) == 1
    assert store.write(data_migrations.set_root_provider_ids, 5000) == everything - 1
    assert store.read(data_migrations.count_rootless) == 0
    assert {p.uuid for p in store.read(providers.find, in_tree=host)} == tree
    assert store.read(audit.audit) == []
