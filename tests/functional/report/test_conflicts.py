"""Somebody else writes to the same providers while this agent does."""

import uuid as uuidlib

import pytest

from compute_agent import errors
from tests.functional.report.claims import claim
from tests.functional.report.interference import before_next
from tests.functional.report.layouts import also, large, small


@pytest.fixture
def reported(hosted):
    return hosted


def gpu(host) -> str:
    return host.client.get_provider_tree(host.root).data(f"{host.name}_GPU0").uuid


def test_a_trait_added_by_others_during_the_pass_survives(reported, other):
    custom = f"CUSTOM_OPERATOR_{reported.tag}"
    other.names.ensure_traits([custom])
    before_next(
        reported, "PUT", "/traits", lambda: other.change_traits(reported.root, add=[custom])
    )

    reported.report(
        also(
            small(reported.name),
            lambda tree: tree.add_traits(reported.name, "HW_CPU_X86_AVX"),
            lambda tree: tree.remove_traits(reported.name, "COMPUTE_NODE"),
        )
    )
    held = other.find_provider(reported.root)
    assert held.traits == {"OWNER_NOVA", "HW_CPU_X86_AVX", custom}


def test_an_aggregate_added_by_others_during_the_pass_survives(reported, other):
    ours, theirs = str(uuidlib.uuid4()), str(uuidlib.uuid4())
    before_next(
        reported,
        "PUT",
        "/aggregates",
        lambda: other.change_aggregates(reported.root, add=[theirs]),
    )

    reported.report(
        also(small(reported.name), lambda tree: tree.add_aggregates(reported.name, ours))
    )
    assert other.find_provider(reported.root).aggregates == {ours, theirs}


def test_a_class_and_a_ratio_written_by_others_during_the_pass_survive(reported, other):
    def interfere() -> None:
        held = other.find_provider(reported.root)
        inventory = {rc: dict(record) for rc, record in held.inventory.items()}
        inventory["VCPU"]["allocation_ratio"] = 16.0
        inventory["DISK_GB"] = {"total": 7}
        other.placement.providers.put_inventories(held.uuid, held.name, held.generation, inventory)

    before_next(reported, "PUT", "/inventories", interfere)
    reported.report(small(reported.name, vcpus=9))
    inventory = other.find_provider(reported.root).inventory
    assert inventory["VCPU"]["total"] == 9
    assert inventory["VCPU"]["allocation_ratio"] == 16.0
    assert inventory["DISK_GB"]["total"] == 7


def test_a_conflict_touches_one_provider_only(reported, other):
    before_next(reported, "PUT", "/inventories", lambda: claim(other, reported.root, {"VCPU": 1}))
    reported.report(small(reported.name, vcpus=9))
    touched = {request.split("/")[2] for request in reported.requests[1:]}
    assert touched == {reported.root}


def test_a_stale_provider_is_read_before_it_is_written(reported, other):
    held = other.find_provider(reported.root)
    inventory = {rc: dict(record) for rc, record in held.inventory.items()}
    inventory["VCPU"]["allocation_ratio"] = 3.0
    other.placement.providers.put_inventories(held.uuid, held.name, held.generation, inventory)
    reported.report(small(reported.name, vcpus=9))
    assert reported.tally.failed_count == 0
    assert other.find_provider(reported.root).inventory["VCPU"]["allocation_ratio"] == 3.0


def test_what_others_wrote_just_as_it_is_wanted_is_not_written_again(reported, other):
    lay_out = also(
        small(reported.name, vcpus=9),
        lambda tree: tree.add_traits(reported.name, "HW_CPU_X86_AVX"),
    )

    def likewise() -> None:
        base = other.get_provider_tree(reported.root)
        new = base.snapshot()
        lay_out(new)
        other.update_from_provider_tree(base, new)

    before_next(reported, "PUT", "/inventories", likewise)
    reported.report(lay_out)
    assert [write.split("/")[-1] for write in reported.writes] == ["inventories"]


def test_what_others_are_known_to_have_written_is_read_by_the_first_read_that_succeeds(
    reported, other
):
    other.change_traits(reported.root, add=["HW_CPU_X86_AVX"])
    reported.client.written_elsewhere(reported.root)

    def away(method, path, body):
        raise errors.PlacementAPIConnectFailure("refused", method=method, path=path)

    reported.transport.before = away
    with pytest.raises(errors.PlacementUnavailable):
        reported.client.get_provider_tree(reported.root)
    reported.transport.before = None
    assert (
        "HW_CPU_X86_AVX"
        in reported.client.get_provider_tree(reported.root).data(reported.root).traits
    )


def test_four_conflicts_in_a_row_are_a_collected_failure(reported, other, clock):
    def always(method, path, body):
        if method == "PUT" and path.endswith("/inventories"):
            claim(other, reported.root, {"VCPU": 1})

    reported.transport.before = always
    with pytest.raises(errors.ResourceProviderSyncFailed) as failed:
        reported.report(small(reported.name, vcpus=9))
    assert [f.aspect for f in failed.value.failures] == ["inventories"]
    assert isinstance(failed.value.failures[0].error, errors.ResourceProviderUpdateConflict)
    assert len([w for w in reported.writes if w.startswith("PUT")]) == 4
    assert all(0 <= wait <= 4 for wait in clock.waits)
    assert len(clock.waits) == 2


def test_a_provider_deleted_under_the_agent_is_created_again_with_its_uuid(reported, other):
    uuid = gpu(reported)

    def more(tree):
        tree.update_inventory(f"{reported.name}_GPU0", {"VGPU": {"total": 5}})

    lay_out = also(small(reported.name), more)
    before_next(reported, "PUT", "/inventories", lambda: other.delete_resource_provider(uuid))
    with pytest.raises(errors.ResourceProviderUpdateConflict, match="begin again"):
        reported.report(lay_out)
    reported.report(lay_out)
    assert other.find_provider(uuid).inventory["VGPU"]["total"] == 5


def test_a_provider_deleted_while_its_tree_is_read_is_not_in_it(reported, other):
    uuid = gpu(reported)
    other.change_traits(uuid, add=["HW_CPU_X86_AVX"])
    before_next(reported, "GET", f"{uuid}/traits", lambda: other.delete_resource_provider(uuid))
    tree = reported.client.get_provider_tree(reported.root, fresh=True)
    assert tree.get_provider_uuids() == [reported.root]


def test_a_child_made_by_another_service_is_left_alone(reported, other):
    theirs = str(uuidlib.uuid4())
    other.placement.providers.create(theirs, f"{reported.name}:agent", reported.root)
    reported.report(small(reported.name))
    assert reported.tally.requests == 1 + 3
    assert reported.tally.writes == 0

    def without(tree):
        small(reported.name)(tree)
        if tree.exists(theirs):
            tree.remove(theirs)

    report = reported.report(without)
    assert [kept.uuid for kept in report.kept_providers] == [theirs]
    assert reported.writes == []
    assert other.find_provider(theirs) is not None


def test_a_provider_of_ours_that_is_in_use_is_kept_and_reserved(reported, other):
    uuid = gpu(reported)
    consumer = claim(other, uuid, {"VGPU": 1})

    without = also(small(reported.name), lambda tree: tree.remove(uuid))
    report = reported.report(without)
    assert [(kept.uuid, "in use" in kept.reason) for kept in report.kept_providers] == [
        (uuid, True)
    ]
    record = other.find_provider(uuid).inventory["VGPU"]
    assert record["reserved"] == record["total"] == 4
    other.placement.allocations.delete_allocation(consumer)
    assert reported.report(without).kept_providers == []
    assert other.find_provider(uuid) is None


def test_a_parent_of_ours_with_a_foreign_child_is_kept(reported, other):
    uuid, theirs = gpu(reported), str(uuidlib.uuid4())

    without = also(small(reported.name), lambda tree: tree.remove(uuid))
    before_next(
        reported,
        "DELETE",
        uuid,
        lambda: other.placement.providers.create(theirs, f"{reported.name}:agent", uuid),
    )
    report = reported.report(without)
    assert [kept.uuid for kept in report.kept_providers] == [uuid]
    assert other.find_provider(theirs) is not None


def test_a_name_held_by_another_provider_is_found_by_uuid(host, other):
    holder = str(uuidlib.uuid4())
    other.placement.providers.create(holder, host.name, None)
    with pytest.raises(errors.ResourceProviderCreationFailed) as failed:
        host.report(small(host.name))
    assert failed.value.name_conflict_uuid == holder
    assert failed.value.code == "placement.duplicate_name"


def test_one_child_whose_name_is_taken_does_not_stop_the_others(host, other):
    holder = str(uuidlib.uuid4())
    other.placement.providers.create(holder, f"{host.name}_GPU0", None)
    with pytest.raises(errors.ResourceProviderSyncFailed) as failed:
        host.report(small(host.name))
    assert [f.aspect for f in failed.value.failures] == ["create"]
    assert failed.value.failures[0].error.name_conflict_uuid == holder
    assert other.find_provider(host.root).inventory["VCPU"]["total"] == 8


def test_below_a_provider_that_cannot_be_made_nothing_is_tried(host, other):
    holder = str(uuidlib.uuid4())
    other.placement.providers.create(holder, f"{host.name}_NIC0", None)
    lay_out = large(host.name, host.tag)
    with pytest.raises(errors.ResourceProviderSyncFailed) as failed:
        host.report(lay_out)
    assert [(f.name, f.aspect) for f in failed.value.failures] == [(f"{host.name}_NIC0", "create")]
    tree = other.get_provider_tree(host.root, fresh=True)
    assert len(tree.get_provider_uuids(host.root)) == 45 - 17
    other.delete_resource_provider(holder)
    host.report(lay_out)
    assert len(other.get_provider_tree(host.root, fresh=True)) == 45


def test_a_rename_to_a_taken_name_names_the_holder(reported, other):
    holder = str(uuidlib.uuid4())
    other.placement.providers.create(holder, f"taken-{reported.tag}", None)

    def lay_out(tree):
        tree.rename(reported.root, f"taken-{reported.tag}")

    with pytest.raises(errors.ResourceProviderSyncFailed) as failed:
        reported.report(lay_out)
    assert failed.value.failures[0].error.name_conflict_uuid == holder


def test_two_devices_that_swap_slots_swap_names(reported, other):
    def two(tree):
        small(reported.name)(tree)
        if not tree.exists(f"{reported.name}_GPU1"):
            tree.new_child(f"{reported.name}_GPU1", reported.name)

    reported.report(two)
    tree = reported.client.get_provider_tree(reported.root)
    zero = tree.data(f"{reported.name}_GPU0").uuid
    one = tree.data(f"{reported.name}_GPU1").uuid

    def swap(tree):
        tree.rename(zero, "interim")
        tree.rename(one, f"{reported.name}_GPU0")
        tree.rename(zero, f"{reported.name}_GPU1")

    reported.report(swap)
    assert other.find_provider(zero).name == f"{reported.name}_GPU1"
    assert other.find_provider(one).name == f"{reported.name}_GPU0"


def test_a_new_device_in_the_slot_of_a_removed_one_takes_its_name(reported, other):
    old = gpu(reported)
    new_uuid = str(uuidlib.uuid4())

    def replaced(tree):
        if tree.exists(old):
            tree.remove(old)
            tree.new_child(f"{reported.name}_GPU0", reported.name, new_uuid)

    reported.report(replaced)
    assert other.find_provider(old) is None
    assert other.find_provider(new_uuid).name == f"{reported.name}_GPU0"


def test_a_provider_moves_below_another_parent(reported, other):
    def moved(tree):
        small(reported.name)(tree)
        numa = f"{reported.name}_NUMA0"
        if not tree.exists(numa):
            tree.new_child(numa, reported.name)
        tree.move(f"{reported.name}_GPU0", numa)

    reported.report(moved)
    tree = other.get_provider_tree(reported.root)
    assert tree.data(tree.data(f"{reported.name}_GPU0").parent_uuid).name.endswith("_NUMA0")
    reported.report(moved)
    assert reported.tally.requests == 1


def test_a_parent_deleted_under_the_agent_is_created_again_with_its_children(reported, other):
    numa, child = f"{reported.name}_NUMA0", f"{reported.name}_NUMA0_GPU"

    def lay_out(tree):
        small(reported.name)(tree)
        for name, parent in ((numa, reported.name), (child, numa)):
            if not tree.exists(name):
                tree.new_child(name, parent)
            tree.add_traits(name, "OWNER_NOVA")

    reported.report(lay_out)
    uuid = other.get_provider_tree(reported.root).data(numa).uuid

    def grown(tree):
        lay_out(tree)
        tree.update_inventory(numa, {"VCPU": {"total": 5}})
        tree.update_inventory(child, {"VGPU": {"total": 5}})
        if not tree.exists(f"{numa}_NIC"):
            tree.new_child(f"{numa}_NIC", numa)

    before_next(
        reported, "POST", "/resource_providers", lambda: other.delete_resource_provider(uuid)
    )
    with pytest.raises(errors.ResourceProviderUpdateConflict, match="begin again"):
        reported.report(grown)
    reported.report(grown)
    tree = other.get_provider_tree(reported.root, fresh=True)
    assert tree.data(child).inventory["VGPU"]["total"] == 5
    assert tree.exists(f"{numa}_NIC")
    reported.report(grown)
    assert reported.tally.requests == 1
