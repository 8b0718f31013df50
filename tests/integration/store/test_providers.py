"""Providers, their inventories, traits and aggregates, and finding them, on every database."""

from __future__ import annotations

import pytest

from placement_server.store import audit
from placement_server.store.allocations import allocations, usages
from placement_server.store.errors import (
    ProviderNotFound,
    ReservedTooLarge,
    ResourceClassNotFound,
    TraitNotFound,
)
from placement_server.store.providers import (
    aggregates,
    inventories,
    inventory_rows,
    providers,
    traits,
)
from placement_server.store.records import InventoryRecord
from placement_server.store.store import Store
from tests.integration.store.conftest import (
    new_provider,
    new_uuid,
    set_of,
)


def found(store: Store, **filters: object) -> set[str]:
    return {p.uuid for p in store.read(providers.find, **filters)}  # type: ignore[arg-type]


def test_uuids_are_compared_exactly(store: Store) -> None:
    uuid = new_provider(store)
    with pytest.raises(ProviderNotFound):
        store.read(providers.get, uuid.upper())


def test_reserved_is_checked_before_the_class_exists(store: Store) -> None:
    provider = new_provider(store)
    with pytest.raises(ReservedTooLarge, match="greater than or equal to total"):
        store.write(
            inventories.add,
            provider,
            "CUSTOM_NONE",
            InventoryRecord(1, reserved=1),
            reserved_may_equal_total=False,
        )


def test_ratios_come_back_as_they_went_in(store: Store) -> None:
    provider = new_provider(
        store,
        {"VCPU": InventoryRecord(4, allocation_ratio=16.1), "PCPU": InventoryRecord(2, 0, 1, 5, 2)},
    )
    records = store.read(inventory_rows.of_provider, provider)[1]
    assert records["VCPU"].record == InventoryRecord(4, allocation_ratio=16.1)
    assert records["PCPU"].record == InventoryRecord(2, 0, 1, 5, 2)


def test_huge_capacities_are_stored_and_claimed_from(store: Store) -> None:
    record = InventoryRecord(2**31 - 1, allocation_ratio=3.40282e38)
    provider = new_provider(store, {"VCPU": record})
    store.write(allocations.write, [set_of(new_uuid(), {provider: {"VCPU": 2**31 - 1}})])
    assert store.read(usages.of_provider, provider)[1] == {"VCPU": 2**31 - 1}
    assert store.read(inventory_rows.of_provider, provider)[1]["VCPU"].record == record


def test_filters_look_at_the_provider_itself(store: Store) -> None:
    root = new_provider(store, {"VCPU": InventoryRecord(8, min_unit=2, max_unit=6, step_size=2)})
    child = new_provider(store, {"DISK_GB": 10}, parent=root)
    aggregate, tree = new_uuid(), root
    store.write(traits.replace_of_provider, root, ["HW_NUMA_ROOT"], generation=1)
    store.write(aggregates.replace, child, [aggregate], generation=1)
    store.write(allocations.write, [set_of(new_uuid(), {root: {"VCPU": 4}})])

    def match(**filters: object) -> set[str]:
        return found(store, in_tree=tree, **filters)

    both = {root, child}
    assert match() == match(name="") == both
    assert match(name=f"name-{child}") == match(uuid=child) == {child}
    assert found(store, in_tree=new_uuid()) == set()
    for amount, fits in ((1, False), (2, True), (3, False), (4, True), (6, False)):
        assert match(resources={"VCPU": amount}) == ({root} if fits else set())
    assert match(resources={"VCPU": 2, "DISK_GB": 1}) == set()
    assert match(required=(frozenset({"HW_NUMA_ROOT", "HW_CPU_X86_AVX"}),)) == {root}
    assert match(required=(frozenset({"HW_NUMA_ROOT"}), frozenset({"HW_CPU_X86_AVX"}))) == set()
    assert match(forbidden=frozenset({"HW_NUMA_ROOT"})) == {child}
    assert match(member_of=(frozenset({aggregate, new_uuid()}),)) == {child}
    assert match(member_of=(frozenset({new_uuid()}),)) == set()
    assert match(forbidden_aggregates=frozenset({aggregate})) == {root}
    assert match(forbidden_aggregates=frozenset({new_uuid()})) == both


def test_unknown_names_count_only_when_the_filters_before_them_leave_anything(
    store: Store,
) -> None:
    nobody = frozenset({"HW_CPU_X86_SGX"})
    unknown = frozenset({"CUSTOM_UNKNOWN"})
    none = {"CUSTOM_NONE": 1}
    for later in ({"required": (unknown,)}, {"forbidden": unknown}, {"resources": none}):
        assert found(store, in_tree=new_uuid(), **later) == set()
    with pytest.raises(TraitNotFound):
        found(store, required=(nobody, unknown))
    assert found(store, required=(nobody,), forbidden=unknown) == set()
    with pytest.raises(TraitNotFound):
        found(store, forbidden=unknown, resources=none)
    assert found(store, required=(nobody,), resources=none) == set()
    assert found(store, member_of=(frozenset({new_uuid()}),), resources=none) == set()
    with pytest.raises(ResourceClassNotFound):
        found(store, resources=none)


def test_nothing_is_wrong_after_all_of_this(store: Store) -> None:
    assert store.read(audit.audit) == []
