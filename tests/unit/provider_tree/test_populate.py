"""A tree filled from what placement lists."""

import pytest

from compute_agent.provider_tree import ProviderTree, Resource, child_uuid
from tests.unit.provider_tree.trees import OTHER, ROOT, names


def record(uuid: str, name: str, parent: str | None = None, generation: int = 0) -> dict:
    return {
        "uuid": uuid,
        "name": name,
        "generation": generation,
        "parent_provider_uuid": parent,
        "root_provider_uuid": ROOT,
    }


def records(tree: ProviderTree) -> list[dict]:
    found = (tree.data(uuid) for uuid in tree.get_provider_uuids())
    return [record(p.uuid, p.name, p.parent_uuid, p.generation or 0) for p in found]


class TestPopulate:
    def test_any_order_of_input_gives_the_same_tree(self, tree):
        listed = records(tree)
        forward, backward = ProviderTree(), ProviderTree()
        forward.populate_from_iterable(listed)
        backward.populate_from_iterable(reversed(listed))
        assert names(forward) == names(backward)
        assert set(names(forward)) == set(names(tree))

    def test_missing_parents_are_all_named_and_nothing_changes(self, tree):
        lost = [record(OTHER, "a", "ffffffff-0000-4000-8000-000000000001")]
        lost.append(record(child_uuid(ROOT, "b"), "b", "ffffffff-0000-4000-8000-000000000002"))
        lost.append(record(ROOT, "renamed"))
        with pytest.raises(ValueError, match=r"ffffffff-.*1, ffffffff-.*2"):
            tree.populate_from_iterable(lost)
        assert tree.data(ROOT).name == "host"
        assert len(tree) == 4

    def test_parents_in_a_loop_are_refused(self):
        one, two = child_uuid(ROOT, "1"), child_uuid(ROOT, "2")
        with pytest.raises(ValueError, match="loop"):
            ProviderTree().populate_from_iterable(
                [record(one, "one", two), record(two, "two", one)]
            )

    def test_a_provider_that_did_not_move_keeps_all_it_has(self, tree):
        unit = Resource(ROOT, "VCPU", "0")
        tree.update_inventory("host", {"VCPU": {"total": 4}})
        tree.update_traits("host", ["A"])
        tree.update_resources("host", {"VCPU": {unit}})
        before = tree.data("host")
        tree.populate_from_iterable([record(ROOT, "host")])
        assert tree.data("host") == before
        assert not tree.stale_aspects("host")
        assert tree.exists("host_GPU0")

    def test_a_provider_that_moved_keeps_its_content_and_is_stale(self, tree):
        tree.update_inventory("host", {"VCPU": {"total": 4}})
        tree.populate_from_iterable([record(ROOT, "host", generation=3)])
        assert tree.data("host").generation == 3
        assert tree.has_inventory("host")
        assert tree.stale_aspects("host") == {"inventories", "aggregates", "traits"}
        assert tree.stale_uuids() == [ROOT]

    def test_freshness_comes_back_aspect_by_aspect(self, tree):
        tree.mark_stale("host")
        tree.mark_fresh("host", ["traits"])
        assert tree.stale_aspects("host") == {"inventories", "aggregates"}
        tree.mark_fresh("host")
        assert tree.stale_uuids() == []

    def test_descendants_that_placement_lost_go_only_when_the_input_is_whole(self, tree):
        listed = [r for r in records(tree) if r["name"] != "host_GPU0"]
        tree.populate_from_iterable(listed)
        assert tree.exists("host_GPU0")
        tree.new_root("lone", OTHER)
        tree.populate_from_iterable(listed, complete_tree_of=ROOT)
        assert names(tree) == ["host", "host_NUMA0", "host_NUMA1", "lone"]

    def test_an_empty_whole_tree_removes_the_tree_and_nothing_else(self, tree):
        tree.new_root("lone", OTHER)
        tree.populate_from_iterable([], complete_tree_of=ROOT)
        assert names(tree) == ["lone"]

    def test_names_that_were_swapped_in_placement_are_taken_over(self, tree):
        listed = records(tree)
        for entry in listed:
            swap = {"host_NUMA0": "host_NUMA1", "host_NUMA1": "host_NUMA0"}
            entry["name"] = swap.get(entry["name"], entry["name"])
        tree.populate_from_iterable(listed, complete_tree_of=ROOT)
        assert tree.data(tree.data("host_GPU0").parent_uuid).name == "host_NUMA1"

    def test_a_provider_found_under_another_parent_moves_there(self, tree):
        listed = records(tree)
        listed[-2]["parent_provider_uuid"] = tree.data("host_NUMA1").uuid
        assert listed[-2]["name"] == "host_GPU0"
        tree.populate_from_iterable(listed)
        assert [child.name for child in tree.children("host_NUMA1")] == ["host_GPU0"]
