"""The order of a plan and what it contains."""

import pytest

from compute_agent.provider_tree import MAX_NAME, ProviderTree, child_uuid
from compute_agent.report.plan import plan, stages
from compute_agent.report.steps import (
    CreateProvider,
    DeleteProvider,
    EnsureResourceClass,
    EnsureTraits,
    KeepProvider,
    PutProvider,
    Reshape,
    SetAggregates,
    SetInventories,
    SetInventory,
    SetTraits,
    describe,
)

ROOT = "aaaaaaaa-0000-4000-8000-000000000001"
AGGREGATE = "aaaaaaaa-0000-4000-8000-00000000000a"
DISABLED = "COMPUTE_STATUS_DISABLED"


@pytest.fixture
def base() -> ProviderTree:
    tree = ProviderTree()
    tree.new_root("host", ROOT, 3)
    tree.update_inventory("host", {"VCPU": {"total": 8}, "VGPU": {"total": 8}})
    tree.update_traits("host", ["COMPUTE_NODE"])
    return tree


def kinds(steps) -> list[str]:
    return [type(step).__name__ for step in steps]


def nested(base: ProviderTree) -> ProviderTree:
    """VGPU moves to two new children with a trait and an aggregate each."""
    wanted = base.snapshot()
    wanted.update_inventory("host", {"VCPU": {"total": 8}})
    for number in range(2):
        wanted.new_child(f"host_GPU{number}", "host")
        wanted.update_inventory(f"host_GPU{number}", {"VGPU": {"total": 4}})
        wanted.add_traits(f"host_GPU{number}", "CUSTOM_MODEL", DISABLED)
        wanted.add_aggregates(f"host_GPU{number}", AGGREGATE)
    return wanted


def consumer(holding: dict[str, dict[str, int]]) -> dict:
    return {
        "allocations": {p: {"generation": 1, "resources": r} for p, r in holding.items()},
        "project_id": "p",
        "user_id": "u",
        "consumer_generation": 1,
    }


def test_new_providers_get_aggregates_and_traits_before_inventory(base):
    steps = plan(base, nested(base))
    assert kinds(steps) == [
        "EnsureTraits",
        *["CreateProvider"] * 2,
        *["SetAggregates"] * 2,
        *["SetTraits"] * 2,
        *["SetInventory"] * 3,
    ]


def test_what_shrinks_is_written_before_what_grows(base):
    written = [o for o in plan(base, nested(base)) if isinstance(o, SetInventory)]
    assert [step.name for step in written] == ["host", "host_GPU0", "host_GPU1"]


@pytest.mark.parametrize("rest", [0, 1])
def test_two_providers_that_exchange_capacity_are_first_shrunk(rest):
    def stock(**totals):
        return {rc: {"total": total} for rc, total in totals.items() if total}

    base = ProviderTree()
    base.new_root("host", ROOT, 0)
    base.new_child("a", "host", generation=0)
    base.new_child("b", "host", generation=0)
    base.update_inventory("a", stock(VCPU=4, VGPU=rest))
    base.update_inventory("b", stock(VCPU=rest, VGPU=4))
    wanted = base.snapshot()
    wanted.update_inventory("a", stock(VCPU=rest, VGPU=4))
    wanted.update_inventory("b", stock(VCPU=4, VGPU=rest))
    written = [
        (o.name, *(o.after.get(rc, {"total": 0})["total"] for rc in ("VCPU", "VGPU")))
        for o in plan(base, wanted)
    ]
    assert written == [("a", rest, rest), ("b", rest, rest), ("a", rest, 4), ("b", 4, rest)]


def test_siblings_are_created_together_and_parents_before():
    base, wanted = ProviderTree(), ProviderTree()
    wanted.new_root("host", ROOT)
    wanted.new_child("numa0", "host")
    wanted.new_child("numa1", "host")
    wanted.new_child("gpu0", "numa0")
    wanted.new_child("gpu1", "numa1")
    created = [[o.name for o in stage] for stage in stages(plan(base, wanted))]
    assert created[0] == ["host"]
    assert {name for stage in created for name in stage} == {
        "host",
        "numa0",
        "numa1",
        "gpu0",
        "gpu1",
    }
    for stage in created:
        assert not {"numa0", "gpu0"} <= set(stage)
        assert not {"numa1", "gpu1"} <= set(stage)


@pytest.mark.parametrize(
    ("trait", "order"),
    [
        (DISABLED, ["SetTraits", "SetInventory", "SetAggregates"]),
        ("HW_CPU_X86_AVX", ["SetInventory", "SetAggregates", "SetTraits"]),
    ],
)
def test_a_trait_that_restricts_comes_before_inventory_and_one_that_promises_after(
    base, trait, order
):
    wanted = base.snapshot()
    wanted.add_traits("host", trait)
    wanted.add_aggregates("host", AGGREGATE)
    wanted.update_inventory("host", {"VCPU": {"total": 9}, "VGPU": {"total": 8}})
    assert kinds(plan(base, wanted)) == ["EnsureTraits", *order]


def test_enabling_a_host_comes_after_its_inventory_and_losing_a_trait_before(base):
    base.add_traits("host", DISABLED)
    for trait, order in (
        (DISABLED, ["SetInventory", "SetTraits"]),
        ("COMPUTE_NODE", ["SetTraits", "SetInventory"]),
    ):
        wanted = base.snapshot()
        wanted.remove_traits("host", trait)
        wanted.update_inventory("host", {"VCPU": {"total": 9}, "VGPU": {"total": 8}})
        assert kinds(plan(base, wanted)) == order


def test_only_custom_classes_and_only_unknown_names_are_ensured(base):
    wanted = base.snapshot()
    inventory = {rc: {"total": 1} for rc in ("VCPU", "CUSTOM_B", "CUSTOM_A", "VGPU", "PCPU")}
    wanted.update_inventory("host", inventory)
    wanted.add_traits("host", "HW_KNOWN", "CUSTOM_NEW")
    steps = plan(base, wanted, known_traits=["HW_KNOWN"], known_classes=["CUSTOM_B"])
    assert [o for o in steps if isinstance(o, EnsureTraits)] == [EnsureTraits(("CUSTOM_NEW",))]
    assert [o for o in steps if isinstance(o, EnsureResourceClass)] == [
        EnsureResourceClass("CUSTOM_A")
    ]


def test_children_are_deleted_before_parents_and_only_owned_ones(base):
    base.new_child("numa", "host", generation=0)
    ours = base.new_child("ours", "numa", generation=0)
    theirs = base.new_child("theirs", "host", generation=0)
    wanted = base.snapshot()
    wanted.remove("numa")
    wanted.remove("theirs")
    steps = plan(base, wanted, is_owned=lambda provider: provider.uuid != theirs)
    assert [type(o) for o in steps] == [KeepProvider, DeleteProvider, DeleteProvider]
    assert steps[1].uuid == ours


def test_a_doomed_provider_is_emptied_first_when_its_capacity_appears_elsewhere(base):
    base.new_child("gpu", "host", generation=0)
    base.update_inventory("gpu", {"VGPU": {"total": 4}})
    wanted = base.snapshot()
    wanted.remove("gpu")
    assert kinds(plan(base, wanted)) == ["DeleteProvider"]
    wanted.update_inventory("host", {"VCPU": {"total": 8}, "VGPU": {"total": 12}})
    steps = plan(base, wanted)
    assert [getattr(o, "name", None) for o in steps] == ["gpu", "host", "gpu"]
    assert kinds(steps) == ["SetInventory", "SetInventory", "DeleteProvider"]
    assert kinds(plan(base, wanted, is_owned=lambda _: False)) == ["SetInventory", "KeepProvider"]


@pytest.mark.parametrize("longer", ["", "x" * (MAX_NAME - 4)])
def test_names_that_are_exchanged_pass_through_an_interim_name(base, longer):
    first, second = f"gpu0{longer}", f"gpu1{longer}"
    one = base.new_child(first, "host", generation=0)
    two = base.new_child(second, "host", generation=0)
    wanted = base.snapshot()
    wanted.rename(one, "interim")
    wanted.rename(two, first)
    wanted.rename(one, second)
    puts = plan(base, wanted)
    assert all(isinstance(step, PutProvider) for step in puts)
    held = {one: first, two: second}
    for put in puts:
        assert len(put.name) <= MAX_NAME
        assert held[put.uuid] == put.old_name
        held[put.uuid] = put.name
        assert len(set(held.values())) == 2
    assert held == {one: second, two: first}


@pytest.mark.parametrize(
    ("is_owned", "order"),
    [
        (True, ["PutProvider", "CreateProvider", "DeleteProvider"]),
        (False, ["CreateProvider", "KeepProvider"]),
    ],
)
def test_the_name_of_a_provider_that_goes_is_free_for_its_successor_unless_it_is_foreign(
    base, is_owned, order
):
    before = base.new_child("gpu0", "host", generation=0)
    wanted = base.snapshot()
    wanted.remove(before)
    wanted.new_child("gpu0", "host", child_uuid(ROOT, "mine"))
    assert kinds(plan(base, wanted, is_owned=lambda _: is_owned)) == order


def test_many_inventories_become_one_request_when_that_is_allowed(base):
    wanted = base.snapshot()
    for number in range(9):
        wanted.new_child(f"gpu{number}", "host")
        wanted.update_inventory(f"gpu{number}", {"VGPU": {"total": 1}})
    assert [o for o in plan(base, wanted, bulk=True) if isinstance(o, SetInventories)]
    assert not [o for o in plan(base, wanted) if isinstance(o, SetInventories)]
    wanted.remove("gpu8")
    assert not [o for o in plan(base, wanted, bulk=True) if isinstance(o, SetInventories)]


class TestReshape:
    def test_inventories_and_allocations_go_together(self, base):
        holder = consumer({child_uuid(ROOT, "_GPU0"): {"VGPU": 1}, ROOT: {"VCPU": 1}})
        steps = plan(base, nested(base), allocations={"c1": holder})
        reshape = next(o for o in steps if isinstance(o, Reshape))
        assert {change.name for change in reshape.changes} == {"host", "host_GPU0", "host_GPU1"}
        assert reshape.allocations == {"c1": holder}
        assert not [o for o in steps if isinstance(o, SetInventory)]

    def test_consumers_that_hold_nothing_of_what_moves_are_left_out(self, base):
        allocations = {
            "cpu only": consumer({ROOT: {"VCPU": 1}}),
            "elsewhere": consumer({AGGREGATE: {"VGPU": 1}}),
            "gpu": consumer({child_uuid(ROOT, "_GPU1"): {"VGPU": 1}}),
        }
        steps = plan(base, nested(base), allocations=allocations)
        reshape = next(o for o in steps if isinstance(o, Reshape))
        assert set(reshape.allocations) == {"gpu"}

    def test_a_consumer_the_driver_changed_is_always_sent(self, base):
        before = {"c": consumer({ROOT: {"VCPU": 2}})}
        after = {"c": consumer({ROOT: {"VCPU": 1}})}
        steps = plan(base, nested(base), allocations=after, original_allocations=before)
        reshape = next(o for o in steps if isinstance(o, Reshape))
        assert set(reshape.allocations) == {"c"}

    def test_a_consumer_that_keeps_what_it_has_is_not_written_again(self, base):
        holder = {"c": consumer({child_uuid(ROOT, "_GPU0"): {"VGPU": 1}})}
        steps = plan(base, nested(base), allocations=holder, original_allocations=holder)
        reshape = next(o for o in steps if isinstance(o, Reshape))
        assert not reshape.allocations

    def test_what_will_be_deleted_is_emptied_in_the_same_request(self, base):
        flat, deep = base, nested(base)
        for uuid in deep.get_provider_uuids():
            deep.set_generation(uuid, 1)
        steps = plan(deep, flat, allocations={})
        reshape = next(o for o in steps if isinstance(o, Reshape))
        emptied = {c.name for c in reshape.changes if not c.after}
        assert emptied == {"host_GPU0", "host_GPU1"}
        assert kinds(steps)[-2:] == ["DeleteProvider", "DeleteProvider"]
        fewer = deep.snapshot()
        fewer.remove("host_GPU1")
        assert kinds(plan(deep, fewer, allocations={})) == ["Reshape", "DeleteProvider"]

    def test_nothing_to_move_is_no_reshape(self, base):
        wanted = base.snapshot()
        wanted.add_traits("host", "HW_CPU_X86_AVX")
        steps = plan(base, wanted, allocations={"c": consumer({ROOT: {"VCPU": 1}})})
        assert kinds(steps) == ["EnsureTraits", "SetTraits"]


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (CreateProvider("u", "gpu", "p"), "create provider gpu (u) under p"),
        (CreateProvider("u", "host", None), "create provider host (u) as a root"),
        (
            PutProvider("u", "old", "new", None, "p"),
            "rename provider old (u) to new; move provider new (u) under p",
        ),
        (PutProvider("u", "old", "new", "p", "p"), "rename provider old (u) to new"),
        (PutProvider("u", "gpu", "gpu", "p", None), "move provider gpu (u) to be a root"),
        (
            SetTraits("u", "host", frozenset("ABX"), frozenset("XCD")),
            "set traits of host: +C +D -A -B",
        ),
        (
            SetAggregates("u", "host", frozenset(), frozenset({"x"})),
            "set aggregates of host: +x",
        ),
        (DeleteProvider("u", "gpu", None), "delete provider gpu (u)"),
        (
            KeepProvider("u", "gpu"),
            "keep provider gpu (u): it is not this agent's to delete",
        ),
        (EnsureTraits(("A", "B")), "make sure placement knows traits A, B"),
        (EnsureResourceClass("CUSTOM_A"), "make sure placement knows resource class CUSTOM_A"),
    ],
)
def test_an_operation_is_described_in_words(step, said):
    assert describe(step) == said


def test_an_inventory_change_is_described_by_what_changes(base):
    wanted = base.snapshot()
    wanted.update_inventory(
        "host",
        {
            "VCPU": {"total": 9},
            "DISK_GB": {"total": 5, "reserved": 1, "allocation_ratio": 1.5},
            "PCPU": {"total": 2},
        },
    )
    (step,) = plan(base, wanted)
    assert describe(step) == (
        "set inventory of host: +DISK_GB (total 5, reserved 1, ratio 1.5); +PCPU (total 2); "
        "VCPU total 8 -> 9; -VGPU"
    )
