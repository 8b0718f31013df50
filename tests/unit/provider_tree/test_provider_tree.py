"""The model of providers: structure, copies, inventories, traits and aggregates."""

import copy
import pickle
import threading
import uuid as uuidlib

import pytest

from compute_agent.provider_tree import (
    MAX_NAME,
    SHARING_TRAIT,
    ProviderTree,
    Resource,
    child_uuid,
    provider_name,
)
from compute_agent.provider_tree.inventory import MAX_INT
from tests.unit.provider_tree.trees import OTHER, ROOT, names


class TestStructure:
    def test_a_provider_is_found_by_name_and_by_uuid_at_any_depth(self, tree):
        gpu = tree.data("host_GPU0")
        assert tree.data(gpu.uuid) is gpu
        assert gpu.parent_uuid == tree.data("host_NUMA0").uuid
        assert tree.exists("host_GPU0")
        assert tree.exists(gpu.uuid)
        assert not tree.exists("host_GPU1")

    def test_parents_come_before_children_and_children_in_the_order_they_were_made(self, tree):
        assert names(tree) == ["host", "host_NUMA0", "host_GPU0", "host_NUMA1"]

    def test_the_uuids_of_a_whole_tree_start_with_its_root(self, tree):
        tree.new_root("lone", OTHER)
        assert tree.get_provider_uuids_in_tree("host_GPU0")[0] == ROOT
        assert OTHER not in tree.get_provider_uuids_in_tree("host_GPU0")
        assert tree.get_provider_uuids("host_NUMA0") == [
            tree.data("host_NUMA0").uuid,
            tree.data("host_GPU0").uuid,
        ]

    @pytest.mark.parametrize(("name", "uuid"), [("host", OTHER), ("new", ROOT)])
    def test_a_taken_name_or_uuid_is_refused(self, tree, name, uuid):
        with pytest.raises(ValueError, match="is taken by"):
            tree.new_root(name, uuid)
        with pytest.raises(ValueError, match="is taken by"):
            tree.new_child(name, "host_NUMA1", uuid)
        assert len(tree) == 4

    @pytest.mark.parametrize(
        ("child", "said"),
        [
            (("child", "nowhere"), "no such provider: nowhere"),
            (("child", "host", "gpu-1"), "not a uuid: 'gpu-1'"),
            (("", "host", OTHER), "1 to 200 characters"),
            (("x" * (MAX_NAME + 1), "host", OTHER), "1 to 200 characters"),
        ],
    )
    def test_what_placement_would_refuse_is_refused(self, tree, child, said):
        with pytest.raises(ValueError, match=said):
            tree.new_child(*child)

    def test_uuids_are_kept_in_their_canonical_form(self, tree):
        assert tree.new_root("lone", OTHER.upper().replace("-", "")) == OTHER

    def test_a_child_without_uuid_gets_the_same_one_on_every_host_name(self):
        uuids = []
        for host in ("old", "new.example.org"):
            tree = ProviderTree()
            tree.new_root(host, ROOT)
            uuids.append(tree.new_child(f"{host}_NUMA0", host))
        assert uuids[0] == uuids[1]

    def test_the_uuid_of_a_child_is_that_of_its_part_of_the_name(self, tree):
        made = tree.new_child("host_GPU7", "host_NUMA1")
        assert made == child_uuid(ROOT, "_GPU7") == str(uuidlib.uuid5(uuidlib.UUID(ROOT), "_GPU7"))

    def test_removing_takes_the_descendants_along_and_frees_their_names(self, tree):
        tree.remove("host_NUMA0")
        assert names(tree) == ["host", "host_NUMA1"]
        tree.new_child("host_GPU0", "host_NUMA1")
        with pytest.raises(ValueError, match="no such provider"):
            tree.remove("host_NUMA0")

    def test_moving_takes_the_descendants_along(self, tree):
        tree.move("host_NUMA0", "host_NUMA1")
        assert names(tree) == ["host", "host_NUMA1", "host_NUMA0", "host_GPU0"]

    def test_moving_to_none_makes_a_root(self, tree):
        tree.move("host_NUMA0", None)
        assert [root.name for root in tree.roots] == ["host", "host_NUMA0"]
        assert tree.root_of("host_GPU0").name == "host_NUMA0"

    @pytest.mark.parametrize("target", ["host_NUMA0", "host_GPU0"])
    def test_moving_below_itself_or_a_descendant_is_refused(self, tree, target):
        with pytest.raises(ValueError, match="cannot move under itself"):
            tree.move("host_NUMA0", target)

    def test_renaming_frees_the_old_name(self, tree):
        tree.rename("host_GPU0", "host_GPU9")
        assert not tree.exists("host_GPU0")
        tree.rename("host_NUMA1", "host_GPU0")
        with pytest.raises(ValueError, match="name host_GPU9 is taken"):
            tree.rename("host", "host_GPU9")

    def test_a_subtree_is_one_root_and_independent(self, tree):
        tree.new_root("lone", OTHER)
        only = tree.subtree("host")
        only.remove("host_NUMA0")
        assert [root.name for root in only.roots] == ["host"]
        assert tree.exists("host_GPU0")
        with pytest.raises(ValueError, match="is not a root"):
            tree.subtree("host_NUMA0")

    def test_a_long_name_is_cut_and_stays_distinct(self):
        cut = provider_name("h" * 300)
        assert len(cut) == MAX_NAME
        assert cut[-9] == "~"
        assert cut != provider_name("h" * 301)
        assert provider_name("short") == "short"


class TestCopies:
    def test_a_snapshot_does_not_see_later_edits_of_either_side(self, tree):
        snapshot = tree.snapshot()
        tree.add_traits("host", "CUSTOM_A")
        tree.remove("host_NUMA0")
        snapshot.rename("host_NUMA1", "other")
        assert snapshot.data("host").traits == frozenset()
        assert names(snapshot) == ["host", "host_NUMA0", "host_GPU0", "other"]
        assert names(tree) == ["host", "host_NUMA1"]

    def test_a_snapshot_shares_the_records_it_has_not_edited(self, tree):
        snapshot = tree.snapshot()
        snapshot.add_traits("host", "CUSTOM_A")
        assert snapshot.data("host_GPU0") is tree.data("host_GPU0")
        assert snapshot.data("host") is not tree.data("host")

    @pytest.mark.parametrize(
        "duplicate", [copy.copy, copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))]
    )
    def test_every_kind_of_copy_is_equal_and_independent(self, tree, duplicate):
        tree.update_inventory("host", {"VCPU": {"total": 4}})
        tree.mark_stale("host_NUMA0", ["traits"])
        again = duplicate(tree)
        assert [again.data(u) for u in again.get_provider_uuids()] == [
            tree.data(u) for u in tree.get_provider_uuids()
        ]
        assert again.stale_aspects("host_NUMA0") == {"traits"}
        again.remove("host")
        assert len(tree) == 4

    def test_what_was_read_cannot_change_the_tree(self, tree):
        tree.update_inventory("host", {"VCPU": {"total": 4}})
        held = tree.data("host").inventory
        with pytest.raises(TypeError, match="snapshot of a provider"):
            held["VCPU"]["total"] = 5
        with pytest.raises(TypeError, match="snapshot of a provider"):
            held.pop("VCPU")
        with pytest.raises(AttributeError):
            tree.data("host").name = "x"
        assert tree.data("host").inventory["VCPU"]["total"] == 4

    def test_a_deep_copy_of_an_inventory_can_be_edited_and_given_back(self, tree):
        tree.update_inventory("host", {"VCPU": {"total": 4}})
        mine = copy.deepcopy(tree.data("host").inventory)
        mine["VCPU"]["total"] = 5
        assert tree.update_inventory("host", mine)
        assert tree.data("host").inventory["VCPU"]["total"] == 5

    def test_threads_that_add_children_lose_none(self, tree):
        def add(prefix: str) -> None:
            for number in range(50):
                tree.new_child(f"{prefix}{number}", "host")

        threads = [threading.Thread(target=add, args=(f"t{n}_",)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(tree.children("host")) == 202


class TestInventory:
    def test_a_record_is_completed_with_placements_defaults(self, tree):
        assert tree.update_inventory("host", {"VCPU": {"total": 4}})
        assert tree.data("host").inventory == {
            "VCPU": {
                "total": 4,
                "reserved": 0,
                "min_unit": 1,
                "max_unit": MAX_INT,
                "step_size": 1,
                "allocation_ratio": 1.0,
            }
        }

    def test_a_ratio_nobody_mentions_is_kept_and_a_reserve_is_not(self, tree):
        tree.update_inventory(
            "host", {"VCPU": {"total": 4, "reserved": 1, "allocation_ratio": 2.0}}
        )
        assert tree.update_inventory("host", {"VCPU": {"total": 5}})
        assert tree.data("host").inventory["VCPU"]["allocation_ratio"] == 2.0
        assert tree.data("host").inventory["VCPU"]["reserved"] == 0

    def test_a_reserve_the_operator_owns_is_kept(self, tree):
        tree.update_inventory("host", {"VF": {"total": 4, "reserved": 4}})
        keys = {"allocation_ratio", "reserved"}
        assert not tree.update_inventory("host", {"VF": {"total": 4}}, operator_keys=keys)
        assert tree.has_inventory_changed("host", {"VF": {"total": 4}})

    @pytest.mark.parametrize(
        ("stored", "given", "is_change"),
        [
            (2.0, 1.0, True),
            (1.1, 1.100000023841858, False),  # as it is read back in single precision
            (1.1, 1.1000002, True),
            (1e39, 1e39, False),  # beyond single precision
        ],
    )
    def test_ratios_are_compared_in_single_precision(self, tree, stored, given, is_change):
        tree.update_inventory("host", {"VCPU": {"total": 4, "allocation_ratio": stored}})
        record = {"total": 4, "allocation_ratio": given}
        assert tree.has_inventory_changed("host", {"VCPU": record}) is is_change
        assert tree.update_inventory("host", {"VCPU": record}) is is_change

    def test_a_class_left_out_goes_and_that_is_a_change(self, tree):
        tree.update_inventory("host", {"VCPU": {"total": 4}, "DISK_GB": {"total": 4}})
        assert tree.update_inventory("host", {"VCPU": {"total": 4}})
        assert tree.has_inventory("host")
        assert tree.update_inventory("host", {})
        assert not tree.has_inventory("host")

    @pytest.mark.parametrize(
        ("bad", "said"),
        [({}, "inventory of VCPU: .* needs the key 'total'"), ({"total": 1, "min": 1}, "'min'")],
    )
    def test_a_record_placement_would_not_understand_is_refused(self, tree, bad, said):
        with pytest.raises(ValueError, match=said):
            tree.update_inventory("host", {"VCPU": bad})

    def test_a_generation_is_stored_also_when_nothing_else_changed(self, tree):
        assert not tree.update_inventory("host", {}, generation=7)
        assert tree.data("host").generation == 7
        assert not tree.update_traits("host", [], generation=8)
        assert not tree.update_aggregates("host", [], generation=9)
        assert tree.data("host").generation == 9
        assert tree.update_traits("host", ["T"])
        assert tree.data("host").generation == 9


class TestTraitsAggregatesResources:
    def test_adding_and_removing_traits_leaves_the_others_alone(self, tree):
        tree.update_traits("host", ["A", "B"])
        tree.add_traits("host", "C", "A")
        tree.remove_traits("host", "B", "NEVER")
        assert tree.data("host").traits == {"A", "C"}
        assert tree.has_traits("host", ["A", "C"])
        assert not tree.has_traits("host", ["A", "B"])
        assert tree.has_traits("host", [])
        assert tree.have_traits_changed("host", ["A"])
        assert not tree.have_traits_changed("host", ["C", "A"])

    def test_aggregates_behave_as_traits_do(self, tree):
        assert tree.update_aggregates("host", [OTHER])
        assert not tree.update_aggregates("host", [OTHER])
        tree.add_aggregates("host", ROOT)
        tree.remove_aggregates("host", OTHER)
        assert tree.in_aggregates("host", [ROOT])
        assert tree.have_aggregates_changed("host", [OTHER])

    def test_resources_are_compared_as_sets(self, tree):
        unit = Resource(ROOT, "CUSTOM_PMEM", "ns0")
        assert tree.have_resources_changed("host", {"CUSTOM_PMEM": {unit}})
        assert tree.update_resources("host", {"CUSTOM_PMEM": [unit, unit]})
        assert not tree.update_resources("host", {"CUSTOM_PMEM": {unit}})

    def test_a_sharing_provider_needs_the_trait_and_the_inventory(self, tree):
        tree.update_inventory("host", {"DISK_GB": {"total": 4}})
        assert not tree.has_sharing_provider("DISK_GB")
        tree.new_root("storage", OTHER)
        tree.add_traits("storage", SHARING_TRAIT)
        assert not tree.has_sharing_provider("DISK_GB")
        tree.update_inventory("storage", {"DISK_GB": {"total": 4}})
        assert tree.has_sharing_provider("DISK_GB")
        assert not tree.has_sharing_provider("VCPU")
