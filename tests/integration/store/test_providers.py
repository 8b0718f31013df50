"""Providers, their inventories, traits and aggregates, and finding them, on every database."""

from __future__ import annotations

import pytest

from placement_server.store import audit
from placement_server.store.allocations import allocations, usages
from placement_server.store.errors import (
    ConcurrentUpdate,
    InventoryExists,
    InventoryNotFound,
    ParentIsSelf,
    ParentLoop,
    ParentNotFound,
    ProviderHasAllocations,
    ProviderHasChildren,
    ProviderNameMissing,
    ProviderNameTaken,
    ProviderNotFound,
    ProviderUuidTaken,
    ReparentingNotAllowed,
    ReservedTooLarge,
    ResourceClassNotFound,
    TraitNotFound,
    UnparentingNotAllowed,
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
    generation_of,
    new_provider,
    new_uuid,
    set_of,
)


def update(
    store: Store, uuid: str, parent: str | None, *, allowed: bool = True
) -> providers.Provider:
    return store.write(
        providers.update,
        uuid,
        name=f"name-{uuid}",
        parent_uuid=parent,
        reparenting_allowed=allowed,
    )


def found(store: Store, **filters: object) -> set[str]:
    return {p.uuid for p in store.read(providers.find, **filters)}  # type: ignore[arg-type]


def test_a_new_provider_without_parent_is_its_own_root(store: Store) -> None:
    uuid = new_provider(store)
    provider = store.read(providers.get, uuid)
    assert (provider.generation, provider.parent_uuid, provider.root_uuid) == (0, None, uuid)
    assert provider.created_at.tzinfo is not None


def test_uuids_are_compared_exactly(store: Store) -> None:
    uuid = new_provider(store)
    with pytest.raises(ProviderNotFound):
        store.read(providers.get, uuid.upper())


def test_taken_names_and_uuids_are_told_apart(store: Store) -> None:
    uuid = new_provider(store)
    with pytest.raises(ProviderUuidTaken):
        store.write(providers.create, uuid=uuid, name="another")
    with pytest.raises(ProviderNameTaken):
        store.write(providers.create, uuid=new_uuid(), name=f"name-{uuid}")
    with pytest.raises(ProviderNameMissing):
        store.write(providers.create, uuid=new_uuid(), name="")
    other = new_provider(store)
    with pytest.raises(ProviderNameTaken):
        store.write(providers.update, other, name=f"name-{uuid}", reparenting_allowed=True)


def test_bad_parents_of_a_new_provider_are_refused(store: Store) -> None:
    uuid = new_uuid()
    with pytest.raises(ParentIsSelf):
        store.write(providers.create, uuid=uuid, name=uuid, parent_uuid=uuid)
    with pytest.raises(ParentNotFound):
        store.write(providers.create, uuid=uuid, name=uuid, parent_uuid=new_uuid())


def test_a_moved_subtree_has_the_new_root_everywhere_and_keeps_its_generations(
    store: Store,
) -> None:
    a, b = new_provider(store), new_provider(store)
    child = new_provider(store, parent=a)
    leaf = new_provider(store, {"VCPU": 1}, parent=child)
    update(store, child, b)
    assert store.read(providers.get, leaf).root_uuid == b
    assert found(store, in_tree=leaf) == {b, child, leaf}
    assert found(store, in_tree=a) == {a}
    assert generation_of(store, leaf) == 1
    update(store, child, None)
    assert found(store, in_tree=leaf) == {child, leaf}


def test_old_clients_may_only_give_a_parent_to_a_provider_without_one(store: Store) -> None:
    a, b, child = new_provider(store), new_provider(store), new_provider(store)
    assert update(store, child, a, allowed=False).parent_uuid == a
    assert update(store, child, a, allowed=False).parent_uuid == a
    with pytest.raises(UnparentingNotAllowed):
        update(store, child, None, allowed=False)
    with pytest.raises(ReparentingNotAllowed):
        update(store, child, b, allowed=False)
    with pytest.raises(ParentNotFound):
        update(store, child, new_uuid(), allowed=False)


def test_a_loop_is_refused_at_any_depth(store: Store) -> None:
    top = new_provider(store)
    middle = new_provider(store, parent=top)
    leaf = new_provider(store, parent=middle)
    for parent in (top, middle, leaf):
        with pytest.raises(ParentLoop):
            update(store, top, parent)


def test_a_provider_with_children_or_allocations_is_not_deleted(store: Store) -> None:
    parent = new_provider(store)
    child, consumer = new_provider(store, {"VCPU": 1}, parent=parent), new_uuid()
    store.write(allocations.write, [set_of(consumer, {child: {"VCPU": 1}})])
    with pytest.raises(ProviderHasChildren):
        store.write(providers.delete, parent)
    with pytest.raises(ProviderHasAllocations):
        store.write(providers.delete, child)
    store.write(allocations.delete, consumer)
    store.write(traits.replace_of_provider, child, ["HW_NUMA_ROOT"], generation=2)
    store.write(aggregates.replace, child, [new_uuid()], generation=3)
    store.write(providers.delete, child)
    store.write(providers.delete, parent)
    with pytest.raises(ProviderNotFound):
        store.write(providers.delete, parent)


def test_an_inventory_replacement_wants_the_generation_and_always_raises_it(store: Store) -> None:
    provider = new_provider(store, {"VCPU": 4})
    with pytest.raises(ConcurrentUpdate):
        store.write(
            inventories.replace, provider, generation=0, records={}, reserved_may_equal_total=True
        )
    for generation in (1, 2):
        after = store.write(
            inventories.replace,
            provider,
            generation=generation,
            records={},
            reserved_may_equal_total=True,
        )
        assert after.generation == generation + 1
        assert store.read(inventory_rows.of_provider, provider)[1] == {}


def test_deleting_no_inventories_raises_the_generation_too(store: Store) -> None:
    provider = new_provider(store)
    store.write(inventories.delete_all, provider)
    assert generation_of(store, provider) == 1


def test_a_second_inventory_of_a_class_is_refused(store: Store) -> None:
    provider = new_provider(store, {"VCPU": 4})
    with pytest.raises(InventoryExists):
        store.write(
            inventories.add, provider, "VCPU", InventoryRecord(1), reserved_may_equal_total=True
        )


def test_unknown_classes_and_missing_inventories_are_told_apart(store: Store) -> None:
    provider = new_provider(store, {"VCPU": 4})
    for name, error in (("CUSTOM_NONE", ResourceClassNotFound), ("DISK_GB", InventoryNotFound)):
        with pytest.raises(error):
            store.write(
                inventories.update_one,
                provider,
                name,
                InventoryRecord(1),
                generation=1,
                reserved_may_equal_total=True,
            )
        with pytest.raises(error):
            store.write(inventories.delete_one, provider, name)
        assert name not in store.read(inventory_rows.of_provider, provider)[1]


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


def test_usages_have_a_key_for_every_inventory(store: Store) -> None:
    provider = new_provider(store, {"VCPU": 4, "DISK_GB": 4})
    assert store.read(usages.of_provider, provider)[1] == {"VCPU": 0, "DISK_GB": 0}


def test_project_usages_come_by_type_with_the_number_of_consumers(store: Store) -> None:
    provider, project = new_provider(store, {"VCPU": 99, "DISK_GB": 99}), new_uuid()
    for number, kind in enumerate(["INSTANCE", "INSTANCE", "MIGRATION", None]):
        write = set_of(
            new_uuid(),
            {provider: {"VCPU": 1 + number, "DISK_GB": 1}},
            project=project,
            user=f"user-{number}",
            consumer_type=kind,
        )
        store.write(allocations.write, [write])
    assert store.read(usages.of_project, project) == {"VCPU": 10, "DISK_GB": 4}
    assert store.read(usages.of_project, project, "user-1") == {"VCPU": 2, "DISK_GB": 1}
    assert store.read(usages.of_project, "nobody") == {}
    by_type = store.read(usages.by_consumer_type, project)
    assert {key: (use.consumer_count, dict(use.resources)) for key, use in by_type.items()} == {
        "INSTANCE": (2, {"VCPU": 3, "DISK_GB": 2}),
        "MIGRATION": (1, {"VCPU": 3, "DISK_GB": 1}),
        "unknown": (1, {"VCPU": 4, "DISK_GB": 1}),
    }
    everything = store.read(usages.by_consumer_type, project, None, "all")
    assert everything["all"].consumer_count == 4
    assert set(store.read(usages.by_consumer_type, project, None, "unknown")) == {"unknown"}
    assert set(store.read(usages.by_consumer_type, project, None, "MIGRATION")) == {"MIGRATION"}
    assert store.read(usages.by_consumer_type, project, None, "NONE") == {}


def test_traits_raise_the_generation_only_when_the_set_changes(store: Store) -> None:
    provider = new_provider(store)
    names = ["HW_NUMA_ROOT", "HW_CPU_X86_AVX"]
    after, rows = store.write(traits.replace_of_provider, provider, names, generation=0)
    assert (after.generation, {row.name for row in rows}) == (1, set(names))
    store.write(traits.replace_of_provider, provider, [*names, names[0]], generation=1)
    assert generation_of(store, provider) == 1
    with pytest.raises(ConcurrentUpdate):
        store.write(traits.replace_of_provider, provider, [], generation=0)
    with pytest.raises(TraitNotFound) as unknown:
        store.write(traits.replace_of_provider, provider, ["CUSTOM_B", "CUSTOM_A"], generation=1)
    assert set(unknown.value.names) == {"CUSTOM_A", "CUSTOM_B"}
    store.write(traits.delete_of_provider, provider)
    store.write(traits.delete_of_provider, provider)
    assert generation_of(store, provider) == 2


def test_aggregates_raise_the_generation_always_or_for_old_clients_never(store: Store) -> None:
    provider, aggregate = new_provider(store), new_uuid()
    store.write(aggregates.replace, provider, [aggregate], generation=None)
    assert generation_of(store, provider) == 0
    for generation in (0, 1):
        store.write(aggregates.replace, provider, [aggregate], generation=generation)
    assert generation_of(store, provider) == 2
    with pytest.raises(ConcurrentUpdate):
        store.write(aggregates.replace, provider, [], generation=0)
    assert store.read(aggregates.of_provider, provider)[1] == [aggregate]


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
    assert found(store, in_tree=new_uuid(), required=(unknown,)) == set()
    with pytest.raises(TraitNotFound):
        found(store, required=(nobody, unknown))
    assert found(store, required=(nobody,), forbidden=unknown) == set()
    with pytest.raises(TraitNotFound):
        found(store, forbidden=unknown, resources={"CUSTOM_NONE": 1})
    assert found(store, required=(nobody,), resources={"CUSTOM_NONE": 1}) == set()
    assert found(store, member_of=(frozenset({new_uuid()}),), resources={"CUSTOM_NONE": 1}) == set()
    with pytest.raises(ResourceClassNotFound):
        found(store, resources={"CUSTOM_NONE": 1})


def test_nothing_is_wrong_after_all_of_this(store: Store) -> None:
    assert store.read(audit.audit) == []
