"""A reshape proposed by a driver: nothing lost, nothing overbooked, nobody else's touched."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compute_agent import errors
from compute_agent.provider_tree import ProviderTree
from compute_agent.tracker import reshape_check

ROOT = "00000000-0000-4000-8000-000000000001"
GPU0 = "00000000-0000-4000-8000-000000000002"
GPU1 = "00000000-0000-4000-8000-000000000003"
POOL = "00000000-0000-4000-8000-00000000000f"
ELSEWHERE = "00000000-0000-4000-8000-0000000000ff"


def record(**allocations) -> dict:
    return {
        "allocations": {
            {"root": ROOT, "gpu0": GPU0, "gpu1": GPU1, "pool": POOL, "elsewhere": ELSEWHERE}[
                place
            ]: {"generation": 7, "resources": resources}
            for place, resources in allocations.items()
        },
        "project_id": "p",
        "user_id": "u",
        "consumer_generation": 1,
    }


def flat() -> ProviderTree:
    """root: VCPU 8, VGPU 4, beside it a storage pool."""
    tree = ProviderTree()
    tree.new_root("host", ROOT, 1)
    tree.update_inventory(ROOT, {"VCPU": {"total": 8}, "VGPU": {"total": 4}})
    tree.new_root("pool", POOL, 1)
    tree.update_inventory(POOL, {"DISK_GB": {"total": 100}})
    tree.update_traits(POOL, ["MISC_SHARES_VIA_AGGREGATE"])
    return tree


def nested() -> ProviderTree:
    """root: VCPU 8; gpu0 and gpu1 below it: VGPU 2 each."""
    tree = flat()
    tree.update_inventory(ROOT, {"VCPU": {"total": 8}})
    for name, uuid in (("host_gpu0", GPU0), ("host_gpu1", GPU1)):
        tree.new_child(name, ROOT, uuid)
        tree.update_inventory(uuid, {"VGPU": {"total": 2}})
    return tree


BEFORE = {
    "a": record(root={"VCPU": 2, "VGPU": 1}, pool={"DISK_GB": 10}, elsewhere={"VCPU": 1}),
    "b": record(root={"VCPU": 1}),
}


def moved(**places) -> dict:
    after = reshape_check.editable(BEFORE)
    after["a"] = record(**places)
    return after


def check(after, wanted=None) -> None:
    reshape_check.check(flat(), wanted or nested(), BEFORE, after, ROOT)


WHOLE = {"pool": {"DISK_GB": 10}, "elsewhere": {"VCPU": 1}}


def test_inventory_moved_with_its_allocations_passes():
    after = moved(root={"VCPU": 2}, gpu0={"VGPU": 1}, **WHOLE)
    check(after)


def test_a_consumer_the_driver_dropped_is_taken_as_unchanged():
    after = moved(root={"VCPU": 2}, gpu0={"VGPU": 1}, **WHOLE)
    del after["b"]
    check(after)


def test_an_edit_by_the_driver_does_not_reach_what_was_fetched():
    copy = reshape_check.editable(BEFORE)
    copy["a"]["allocations"][ROOT]["resources"].clear()
    assert BEFORE["a"]["allocations"][ROOT]["resources"] == {"VCPU": 2, "VGPU": 1}


@pytest.mark.parametrize(
    ("places", "said"),
    [
        ({"root": {"VCPU": 2}, **WHOLE}, "consumer a held 1 of VGPU and would hold 0"),
        (
            {"root": {"VCPU": 2}, "gpu0": {"VGPU": 2}, **WHOLE},
            "consumer a held 1 of VGPU and would hold 2",
        ),
        ({"root": {"VCPU": 2, "VGPU": 1}, **WHOLE}, "which would have none of it"),
        (
            {"root": {"VCPU": 2}, "gpu0": {"VGPU": 1}, "pool": {"DISK_GB": 10}},
            "on other trees were changed",
        ),
        (
            {"root": {"VCPU": 2}, "gpu0": {"VGPU": 1}, "gpu1": {}, **WHOLE},
            "without any amount left",
        ),
    ],
)
def test_what_would_be_lost_is_named(places, said):
    with pytest.raises(errors.ReshapeFailed, match=said):
        check(moved(**places))


def test_a_consumer_that_appears_is_refused():
    with pytest.raises(errors.ReshapeFailed, match="appeared"):
        check({**BEFORE, "c": record(gpu0={"VGPU": 1})}, flat())


def test_overbooking_and_unit_limits_are_named():
    wanted = nested()
    wanted.update_inventory(GPU0, {"VGPU": {"total": 2, "reserved": 2}})
    with pytest.raises(errors.ReshapeFailed, match="would have 1 of VGPU allocated and has 0"):
        check(moved(root={"VCPU": 2}, gpu0={"VGPU": 1}, **WHOLE), wanted)
    wanted.update_inventory(GPU0, {"VGPU": {"total": 2, "min_unit": 2, "step_size": 2}})
    with pytest.raises(errors.ReshapeFailed, match="gives 2 to"):
        check(moved(root={"VCPU": 2}, gpu0={"VGPU": 1}, **WHOLE), wanted)


def test_a_host_overcommitted_before_may_still_be_reshaped_elsewhere():
    wanted = nested()
    wanted.update_inventory(ROOT, {"VCPU": {"total": 1}})
    check(moved(root={"VCPU": 2}, gpu0={"VGPU": 1}, **WHOLE), wanted)


def test_a_class_may_take_another_name():
    wanted = flat()
    wanted.update_inventory(
        ROOT, {"VCPU": {"total": 8}, "VGPU": {"total": 4}, "PCPU": {"total": 4}}
    )
    check(moved(root={"PCPU": 2, "VGPU": 1}, **WHOLE), wanted)


def test_inventory_of_a_sharing_provider_never_moves():
    wanted = nested()
    wanted.update_inventory(POOL, {"DISK_GB": {"total": 50}})
    with pytest.raises(errors.ReshapeFailed, match="sharing provider pool"):
        check(moved(root={"VCPU": 2}, gpu0={"VGPU": 1}, **WHOLE), wanted)


amounts = st.lists(st.integers(1, 3), min_size=1, max_size=6)


@given(amounts=amounts, data=st.data())
def test_any_redistribution_that_keeps_every_sum_and_fits_passes_and_any_theft_is_found(
    amounts, data
):
    before = {f"c{i}": record(root={"VGPU": amount}) for i, amount in enumerate(amounts)}
    wanted = nested()
    wanted.update_inventory(GPU0, {"VGPU": {"total": 100}})
    wanted.update_inventory(GPU1, {"VGPU": {"total": 100}})
    after = {}
    for i, amount in enumerate(amounts):
        first = data.draw(st.integers(0, amount))
        split = {"gpu0": {"VGPU": first}, "gpu1": {"VGPU": amount - first}}
        after[f"c{i}"] = record(**{k: v for k, v in split.items() if v["VGPU"]})
    reshape_check.check(flat(), wanted, before, after, ROOT)
    victim = data.draw(st.sampled_from(sorted(after)))
    place = data.draw(st.sampled_from(sorted(after[victim]["allocations"])))
    after[victim]["allocations"][place]["resources"]["VGPU"] += 1
    with pytest.raises(errors.ReshapeFailed, match=victim):
        reshape_check.check(flat(), wanted, before, after, ROOT)


class TestDevicesCountedForTheFirstTime:
    """Guests that hold PCI devices get allocations for them when placement begins to count."""

    NIC = "00000000-0000-4000-8000-000000000009"

    def with_nic(self, *, managed: bool = True) -> ProviderTree:
        tree = flat()
        tree.new_child("host_0000:80:00.0", ROOT, self.NIC)
        tree.update_inventory(self.NIC, {"CUSTOM_PCI_8086_1889": {"total": 4}})
        if managed:
            tree.add_traits(self.NIC, "COMPUTE_MANAGED_PCI_DEVICE")
        return tree

    def healed(self) -> dict:
        after = reshape_check.editable(BEFORE)
        after["b"]["allocations"][self.NIC] = {"resources": {"CUSTOM_PCI_8086_1889": 2}}
        return after

    def test_they_may_appear(self):
        reshape_check.check(flat(), self.with_nic(), BEFORE, self.healed(), ROOT)

    def test_they_may_not_where_placement_counted_before(self):
        with pytest.raises(errors.ReshapeFailed, match="held 0 of CUSTOM_PCI_8086_1889"):
            reshape_check.check(self.with_nic(), self.with_nic(), BEFORE, self.healed(), ROOT)

    def test_they_may_not_on_what_is_no_pci_device(self):
        wanted = self.with_nic(managed=False)
        with pytest.raises(errors.ReshapeFailed, match="held 0 of CUSTOM_PCI_8086_1889"):
            reshape_check.check(flat(), wanted, BEFORE, self.healed(), ROOT)

    def test_nothing_else_may_be_lost_under_their_cover(self):
        after = self.healed()
        after["a"]["allocations"][ROOT]["resources"]["VCPU"] = 1
        after["a"]["allocations"][self.NIC] = {"resources": {"CUSTOM_PCI_8086_1889": 2}}
        with pytest.raises(errors.ReshapeFailed, match="held 2 of VCPU"):
            reshape_check.check(flat(), self.with_nic(), BEFORE, after, ROOT)
