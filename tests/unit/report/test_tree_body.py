"""A whole plan as the body of one request: what it names, and what it leaves alone."""

import pytest

from compute_agent import errors
from compute_agent.provider_tree import ProviderTree, child_uuid
from compute_agent.report.flushing.tree_body import HAS_CHILDREN, AcceptedNames, tree_change
from compute_agent.report.operations import Reshape
from compute_agent.report.plan import plan

ROOT = "aaaaaaaa-0000-4000-8000-000000000001"
FOREIGN = child_uuid(ROOT, "foreign")
GPU = child_uuid(ROOT, "gpu")
SHARED = "bbbbbbbb-0000-4000-8000-000000000001"
ELSEWHERE = "cccccccc-0000-4000-8000-000000000001"
GUEST = "dddddddd-0000-4000-8000-000000000001"
AGGREGATE = "aaaaaaaa-0000-4000-8000-00000000000a"
DISABLED = "COMPUTE_STATUS_DISABLED"


@pytest.fixture
def base() -> ProviderTree:
    """A host with a GPU, a provider of another service, and a pool shared with it."""
    tree = ProviderTree()
    tree.new_root("host", ROOT, 3)
    tree.update_inventory("host", {"VCPU": {"total": 8}, "VGPU": {"total": 8}})
    tree.update_traits("host", ["COMPUTE_NODE", "OWNER_NOVA"])
    tree.new_child("host_GPU", "host", GPU, 1)
    tree.update_traits("host_GPU", ["OWNER_NOVA"])
    tree.new_child("host:agent", "host", FOREIGN, 1)
    tree.update_inventory("host:agent", {"NET_BW_EGR_KILOBIT_PER_SEC": {"total": 1000}})
    tree.new_root("pool", SHARED, 5)
    tree.update_inventory("pool", {"DISK_GB": {"total": 100}})
    return tree


def is_ours(provider) -> bool:
    return "OWNER_NOVA" in provider.traits


def change_to(base, wanted, *, live=None, **options):
    operations = plan(base, wanted, is_owned=is_ours)
    return tree_change(ROOT, live or base, operations, **options)


def consumer(holding: dict[str, dict[str, int]], **other) -> dict:
    return {
        "allocations": {p: {"generation": 1, "resources": r} for p, r in holding.items()},
        "project_id": "p",
        "user_id": "u",
        "consumer_generation": 4,
        **other,
    }


def test_only_what_differs_is_named(base):
    wanted = base.snapshot()
    wanted.add_traits("host", "HW_CPU_X86_AVX")
    assert change_to(base, wanted).body == {
        "providers": [
            {
                "uuid": ROOT,
                "name": "host",
                "parent_provider_uuid": None,
                "traits": ["COMPUTE_NODE", "HW_CPU_X86_AVX", "OWNER_NOVA"],
            }
        ],
        "absent": [],
    }


def test_nothing_differs_in_a_plan_that_was_carried_out(base):
    wanted = base.snapshot()
    wanted.update_inventory("host", {"VCPU": {"total": 9}})
    assert change_to(base, wanted)
    assert not change_to(base, wanted, live=wanted)


def test_new_providers_come_parents_first_with_all_they_have(base):
    wanted = base.snapshot()
    wanted.new_child("host_NUMA0", "host", child_uuid(ROOT, "numa"))
    wanted.new_child("host_NUMA0_GPU", "host_NUMA0", child_uuid(ROOT, "numa gpu"))
    wanted.update_inventory("host_NUMA0_GPU", {"VGPU": {"total": 4}})
    wanted.update_aggregates("host_NUMA0_GPU", [AGGREGATE])
    first, second = change_to(base, wanted).body["providers"]
    assert first == {
        "uuid": child_uuid(ROOT, "numa"),
        "name": "host_NUMA0",
        "parent_provider_uuid": ROOT,
    }
    assert second["parent_provider_uuid"] == first["uuid"]
    assert second["inventories"]["VGPU"]["total"] == 4
    assert second["aggregates"] == [AGGREGATE]
    assert "traits" not in second


def test_the_names_of_two_providers_are_exchanged_without_one_in_between(base):
    wanted = base.snapshot()
    wanted.new_child("host_GPU1", "host", child_uuid(ROOT, "gpu 1"))
    live = wanted.snapshot()
    wanted.rename(GPU, "interim")
    wanted.rename("host_GPU1", "host_GPU")
    wanted.rename(GPU, "host_GPU1")
    body = tree_change(ROOT, live, plan(live, wanted)).body
    assert {entry["uuid"]: entry["name"] for entry in body["providers"]} == {
        GPU: "host_GPU1",
        child_uuid(ROOT, "gpu 1"): "host_GPU",
    }


def test_a_provider_of_another_service_is_named_nowhere(base):
    wanted = base.snapshot()
    wanted.remove(FOREIGN)
    change = change_to(base, wanted)
    assert not change
    assert set(change.kept_reasons) == {FOREIGN}


def test_what_is_deleted_is_absent_children_first(base):
    below = child_uuid(ROOT, "below")
    base.new_child("host_GPU_VF", GPU, below, 0)
    base.update_traits(below, ["OWNER_NOVA"])
    wanted = base.snapshot()
    wanted.remove(GPU)
    assert change_to(base, wanted).body == {"providers": [], "absent": [below, GPU]}


def test_a_provider_below_which_another_service_has_one_is_reserved_and_stays(base):
    base.update_inventory(GPU, {"VGPU": {"total": 4}})
    base.new_child("host_GPU:agent", GPU, child_uuid(ROOT, "theirs"), 0)
    wanted = base.snapshot()
    wanted.remove(GPU)
    change = change_to(base, wanted)
    assert change.kept_reasons[GPU] == HAS_CHILDREN
    (entry,) = change.body["providers"]
    assert entry["inventories"]["VGPU"]["reserved"] == 4
    assert change.body["absent"] == []
    assert not change_to(base, wanted, live=change.result)


def test_what_others_changed_meanwhile_survives(base):
    wanted = base.snapshot()
    wanted.update_inventory("host", {"VCPU": {"total": 9}, "VGPU": {"total": 8}})
    wanted.add_traits("host", "HW_CPU_X86_AVX")
    wanted.remove_traits("host", "COMPUTE_NODE")
    wanted.update_aggregates("host", [AGGREGATE])
    live = base.snapshot()
    live.update_inventory(
        "host",
        {
            "VCPU": {"total": 8, "allocation_ratio": 16.0},
            "VGPU": {"total": 8},
            "CUSTOM_THEIRS": {"total": 1},
        },
    )
    live.add_traits("host", DISABLED)
    live.update_aggregates("host", [ELSEWHERE])
    result = change_to(base, wanted, live=live).result.data(ROOT)
    assert result.inventory["VCPU"]["total"] == 9
    assert result.inventory["VCPU"]["allocation_ratio"] == 16.0
    assert "CUSTOM_THEIRS" in result.inventory
    assert result.traits == {"OWNER_NOVA", "HW_CPU_X86_AVX", DISABLED}
    assert result.aggregates == {AGGREGATE, ELSEWHERE}


def test_a_provider_that_the_plan_needs_and_that_is_gone_begins_the_pass_again(base):
    wanted = base.snapshot()
    wanted.update_inventory(GPU, {"VGPU": {"total": 4}})
    live = base.snapshot()
    live.remove(GPU)
    with pytest.raises(errors.ResourceProviderUpdateConflict, match="begin again"):
        change_to(base, wanted, live=live)


def test_a_new_provider_whose_name_came_into_use_begins_the_pass_again(base):
    wanted = base.snapshot()
    wanted.new_child("host_NIC", "host", child_uuid(ROOT, "nic"))
    live = base.snapshot()
    live.new_child("host_NIC", "host", child_uuid(ROOT, "theirs"))
    with pytest.raises(errors.ResourceProviderUpdateConflict, match="begin again"):
        change_to(base, wanted, live=live)


def test_a_change_of_a_provider_that_is_shared_is_not_within_the_tree(base):
    wanted = base.snapshot()
    wanted.add_traits("host", "HW_CPU_X86_AVX")
    assert change_to(base, wanted).within_tree
    wanted.update_inventory("pool", {"DISK_GB": {"total": 200}})
    assert not change_to(base, wanted).within_tree


def test_a_provider_that_comes_out_of_another_tree_is_not_within_the_tree(base):
    wanted = base.snapshot()
    wanted.move("pool", "host")
    assert not change_to(base, wanted).within_tree


def test_names_that_placement_refuses_are_left_out(base):
    wanted = base.snapshot()
    wanted.add_traits("host", "HW_NOT_A_TRAIT", "HW_CPU_X86_AVX")
    names = AcceptedNames(traits=lambda traits: frozenset(traits) - {"HW_NOT_A_TRAIT"})
    (entry,) = change_to(base, wanted, names=names).body["providers"]
    assert entry["traits"] == ["COMPUTE_NODE", "HW_CPU_X86_AVX", "OWNER_NOVA"]


class TestReshape:
    @pytest.fixture
    def wanted(self, base) -> ProviderTree:
        wanted = base.snapshot()
        wanted.update_inventory("host", {"VCPU": {"total": 8}})
        wanted.update_inventory(GPU, {"VGPU": {"total": 8}})
        return wanted

    def change(self, base, wanted, record, live=None):
        operations = plan(base, wanted, allocations={GUEST: record}, is_owned=is_ours)
        assert any(isinstance(operation, Reshape) for operation in operations)
        return tree_change(ROOT, live or base, operations)

    def test_allocations_are_those_in_the_tree_alone(self, base, wanted):
        record = consumer(
            {ROOT: {"VCPU": 1}, GPU: {"VGPU": 2}, SHARED: {"DISK_GB": 7}, ELSEWHERE: {"VCPU": 9}}
        )
        assert self.change(base, wanted, record).body["allocations"] == {
            GUEST: {
                "allocations": {
                    ROOT: {"resources": {"VCPU": 1}},
                    GPU: {"resources": {"VGPU": 2}},
                },
                "project_id": "p",
                "user_id": "u",
                "consumer_generation": 4,
            }
        }

    def test_one_that_was_done_already_moves_nothing(self, base, wanted):
        record = consumer({GPU: {"VGPU": 2}})
        assert self.change(base, wanted, record).reshapes
        done = self.change(base, wanted, record, live=wanted)
        assert not done
        assert not done.reshapes

    def test_an_entry_without_resources_is_refused(self, base, wanted):
        change = self.change(base, wanted, consumer({GPU: {"VGPU": 2}, ROOT: {}}))
        with pytest.raises(errors.ReshapeFailed, match=GUEST):
            change.body  # noqa: B018 - the property raises
