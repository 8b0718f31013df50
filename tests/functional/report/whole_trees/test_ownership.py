"""Whole trees leave alone what the agent does not own."""

import uuid as uuidlib

import pytest

from compute_agent import errors
from compute_agent.provider_tree import child_uuid
from tests.functional.report.claims import claim
from tests.functional.report.failing_answers import OURS_ALONE
from tests.functional.report.interference import before_next
from tests.functional.report.layouts import small

from .interruptions import inventory_of, path

pytestmark = OURS_ALONE


class TestOwnership:
    def test_what_others_write_during_the_pass_survives(self, reported, other):
        custom, aggregate = f"CUSTOM_OPERATOR_{reported.tag}", str(uuidlib.uuid4())

        def interfere():
            other.names.ensure_traits([custom])
            other.change_traits(reported.root, add=[custom, "COMPUTE_STATUS_DISABLED"])
            other.change_aggregates(reported.root, add=[aggregate])
            held = other.find_provider(reported.root)
            inventory = {rc: dict(record) for rc, record in held.inventory.items()}
            inventory["VCPU"]["allocation_ratio"] = 16.0
            inventory["DISK_GB"] = {"total": 7}
            other.placement.providers.put_inventories(
                held.uuid, held.name, held.generation, inventory
            )

        before_next(reported, "PUT", path(reported), interfere)

        def lay_out(tree):
            small(reported.name, vcpus=9)(tree)
            tree.remove_traits(reported.name, "COMPUTE_NODE")

        reported.report(lay_out)
        held = other.find_provider(reported.root)
        assert held.traits == {"OWNER_NOVA", "COMPUTE_STATUS_DISABLED", custom}
        assert held.aggregates == {aggregate}
        assert held.inventory["VCPU"]["total"] == 9
        assert held.inventory["VCPU"]["allocation_ratio"] == 16.0
        assert held.inventory["DISK_GB"]["total"] == 7

    def test_a_provider_of_ours_that_is_in_use_is_kept_and_reserved(self, reported, other):
        uuid = other.get_provider_tree(reported.root).data(f"{reported.name}_GPU0").uuid
        consumer = claim(other, uuid, {"VGPU": 1})

        def without(tree):
            small(reported.name)(tree)
            tree.remove(uuid)

        report = reported.report(without)
        assert [(kept.uuid, "in use" in kept.reason) for kept in report.kept_providers] == [
            (uuid, True)
        ]
        record = inventory_of(other, uuid)["VGPU"]
        assert record["reserved"] == record["total"] == 4
        other.placement.allocations.delete_allocation(consumer)
        assert reported.report(without).kept_providers == []
        assert other.find_provider(uuid) is None

    def test_one_child_whose_name_is_taken_does_not_stop_the_others(self, whole, other):
        holder = str(uuidlib.uuid4())
        other.placement.providers.create(holder, f"{whole.name}_GPU0", None)
        with pytest.raises(errors.ResourceProviderSyncFailed) as failed:
            whole.report(small(whole.name))
        assert [f.aspect for f in failed.value.failures] == ["create"]
        assert failed.value.failures[0].error.name_conflict_uuid == holder
        assert inventory_of(other, whole.root)["VCPU"]["total"] == 8

    def test_a_root_whose_name_is_taken_names_the_holder(self, whole, other):
        holder = str(uuidlib.uuid4())
        other.placement.providers.create(holder, whole.name, None)
        with pytest.raises(errors.ResourceProviderSyncFailed) as failed:
            whole.report(small(whole.name))
        failure = failed.value.failures[0]
        assert (failure.uuid, failure.aspect) == (whole.root, "create")
        assert failure.error.name_conflict_uuid == holder

    def test_a_provider_of_another_tree_is_not_taken_over(self, reported, other, new_host):
        elsewhere = new_host()
        elsewhere.report(small(elsewhere.name))
        theirs = child_uuid(elsewhere.root, f"{elsewhere.name}_GPU0")
        theirs = other.get_provider_tree(elsewhere.root).data(f"{elsewhere.name}_GPU0").uuid

        def lay_out(tree):
            small(reported.name, vcpus=9)(tree)
            tree.new_child(f"{reported.name}_GPU1", reported.name, theirs)

        with pytest.raises(errors.ResourceProviderSyncFailed, match="has a provider of this uuid"):
            reported.report(lay_out)
        assert other.find_provider(theirs).parent_uuid == elsewhere.root
        assert inventory_of(other, reported.root)["VCPU"]["total"] == 9

    def test_a_class_in_use_cannot_go_and_the_rest_is_written(self, reported, other):
        claim(other, reported.root, {"VCPU": 1})

        def lay_out(tree):
            small(reported.name)(tree)
            tree.update_inventory(reported.name, {"MEMORY_MB": {"total": 1024}})
            tree.update_inventory(f"{reported.name}_GPU0", {"VGPU": {"total": 5}})

        with pytest.raises(errors.ResourceProviderSyncFailed) as failed:
            reported.report(lay_out)
        assert isinstance(failed.value.failures[0].error, errors.InventoryInUse)
        tree = other.get_provider_tree(reported.root, fresh=True)
        assert tree.data(f"{reported.name}_GPU0").inventory["VGPU"]["total"] == 5

    def test_names_placement_refuses_are_left_out_and_logged_once(self, whole, other, caplog):
        def lay_out(tree):
            small(whole.name)(tree)
            tree.add_traits(whole.name, "HW_NOT_A_TRAIT", f"CUSTOM_FINE_{whole.tag}", "CUSTOM_bad")
            tree.update_inventory(
                f"{whole.name}_GPU0", {"VGPU": {"total": 4}, "NOT_A_CLASS": {"total": 1}}
            )

        whole.report(lay_out)
        tree = other.get_provider_tree(whole.root, fresh=True)
        fine = {"OWNER_NOVA", "COMPUTE_NODE", f"CUSTOM_FINE_{whole.tag}"}
        assert tree.data(whole.root).traits == fine
        assert set(tree.data(f"{whole.name}_GPU0").inventory) == {"VGPU"}
        assert whole.client.names.refused_names == {"HW_NOT_A_TRAIT", "CUSTOM_bad", "NOT_A_CLASS"}
        assert len([r for r in caplog.records if r.levelname == "ERROR"]) == 3
        caplog.clear()
        whole.report(lay_out)
        assert whole.tally.requests == 1
        assert not [r for r in caplog.records if r.levelname == "ERROR"]

    def test_two_devices_that_swap_slots_swap_names(self, reported, other):
        def two(tree):
            small(reported.name)(tree)
            if not tree.exists(f"{reported.name}_GPU1"):
                tree.new_child(f"{reported.name}_GPU1", reported.name)

        reported.report(two)
        tree = other.get_provider_tree(reported.root)
        zero = tree.data(f"{reported.name}_GPU0").uuid
        one = tree.data(f"{reported.name}_GPU1").uuid

        def swap(tree):
            tree.rename(zero, "interim")
            tree.rename(one, f"{reported.name}_GPU0")
            tree.rename(zero, f"{reported.name}_GPU1")

        reported.report(swap)
        assert reported.writes == [f"PUT {path(reported)}"]
        assert other.find_provider(zero).name == f"{reported.name}_GPU1"
        assert other.find_provider(one).name == f"{reported.name}_GPU0"

    def test_a_new_device_in_the_slot_of_a_removed_one_takes_its_name(self, reported, other):
        old = other.get_provider_tree(reported.root).data(f"{reported.name}_GPU0").uuid
        new_uuid = str(uuidlib.uuid4())

        def replaced(tree):
            if tree.exists(old):
                tree.remove(old)
                tree.new_child(f"{reported.name}_GPU0", reported.name, new_uuid)

        reported.report(replaced)
        assert reported.writes == [f"PUT {path(reported)}"]
        assert other.find_provider(old) is None
        assert other.find_provider(new_uuid).name == f"{reported.name}_GPU0"


def test_a_trait_that_is_added_alone_and_removed_by_others_is_not_believed_to_be_there(
    reported, other
):
    reported.client.change_traits(reported.root, add=["COMPUTE_STATUS_DISABLED"])
    other.change_traits(reported.root, remove=["COMPUTE_STATUS_DISABLED"])
    reported.report(small(reported.name))
    tree = reported.client.known_tree(reported.root)
    assert "COMPUTE_STATUS_DISABLED" not in tree.data(reported.root).traits
