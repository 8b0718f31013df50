"""A reshape proposed by a driver: nothing lost, nothing overbooked, nobody else's touched."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compute_agent import errors
from compute_agent.provider_tree import ProviderTree
from compute_agent.tracker.passes import reshape_check

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


class TestSumsByClass:
    """What a consumer held of a class it still holds of that class, or of what the class became."""

    def tree(self, **inventories: dict[str, int]) -> ProviderTree:
        tree = flat()
        for place, totals in inventories.items():
            uuid = {"root": ROOT, "gpu0": GPU0, "gpu1": GPU1}[place]
            if uuid != ROOT:
                tree.new_child(f"host_{place}", ROOT, uuid)
            tree.update_inventory(uuid, {rc: {"total": total} for rc, total in totals.items()})
        return tree

    def check(self, base: ProviderTree, wanted: ProviderTree, was: dict, now: dict) -> None:
        reshape_check.check(base, wanted, {"a": record(**was)}, {"a": record(**now)}, ROOT)

    def refused(self, base: ProviderTree, wanted: ProviderTree, was: dict, now: dict) -> str:
        with pytest.raises(errors.ReshapeFailed) as caught:
            self.check(base, wanted, was, now)
        return caught.value.error

    @pytest.mark.parametrize(
        ("was", "now"), [("VGPU", "VCPU"), ("VCPU", "VGPU"), ("VGPU", "PCPU"), ("PCPU", "VGPU")]
    )
    def test_an_equal_number_of_another_class_is_no_compensation(self, was, now):
        """Though the class goes from the root and other classes come, as layouts change."""
        kept = {"VCPU", "PCPU"} - {was, now}
        totals = dict.fromkeys(kept, 8)
        base = self.tree(root={**totals, was: 8})
        wanted = self.tree(root=totals, gpu0={now: 8})
        said = self.refused(base, wanted, {"root": {was: 1}}, {"gpu0": {now: 1}})
        assert f"consumer a held 1 of {was} and would hold 0" in said
        assert f"consumer a held 0 of {now} and would hold 1" in said

    def test_units_of_one_class_do_not_pass_over_to_another_that_is_held_too(self):
        base = self.tree(root={"VCPU": 8, "VGPU": 4})
        wanted = self.tree(root={"VCPU": 8}, gpu0={"VGPU": 4})
        said = self.refused(base, wanted, {"root": {"VCPU": 2, "VGPU": 1}}, {"root": {"VCPU": 3}})
        assert "consumer a held 1 of VGPU and would hold 0" in said
        assert "consumer a held 2 of VCPU and would hold 3" in said

    @pytest.mark.parametrize(("was", "now"), [("VCPU", "PCPU"), ("PCPU", "VCPU")])
    def test_cpus_change_their_kind_one_for_one(self, was, now):
        base = self.tree(root={was: 8})
        wanted = self.tree(root={"VCPU": 8, "PCPU": 8})
        self.check(base, wanted, {"root": {was: 3}}, {"root": {was: 1, now: 2}})
        self.check(base, wanted, {"root": {was: 3}}, {"root": {now: 3}})
        said = self.refused(base, wanted, {"root": {was: 3}}, {"root": {was: 1, now: 3}})
        assert f"consumer a held 3 of {was} and would hold 1" in said

    def test_a_class_that_goes_from_a_device_may_become_the_one_that_comes(self):
        base = self.tree(root={"VCPU": 8}, gpu0={"VGPU": 4}, gpu1={"VGPU": 4})
        wanted = self.tree(root={"VCPU": 8}, gpu0={"VGPU": 4}, gpu1={"CUSTOM_BIG": 4})
        held = {"gpu0": {"VGPU": 1}, "gpu1": {"VGPU": 2}}
        self.check(base, wanted, held, {"gpu0": {"VGPU": 1}, "gpu1": {"CUSTOM_BIG": 2}})
        said = self.refused(base, wanted, held, {"gpu0": {"VGPU": 2}, "gpu1": {"CUSTOM_BIG": 2}})
        assert "consumer a held 0 of CUSTOM_BIG and would hold 2" in said
        said = self.refused(base, wanted, held, {"gpu1": {"CUSTOM_BIG": 3}})
        assert "consumer a held 3 of VGPU and would hold 0" in said, "it is still there on gpu0"

    def test_names_given_on_one_device_are_not_those_of_another(self):
        base = self.tree(root={"VCPU": 8}, gpu0={"CUSTOM_A": 4}, gpu1={"CUSTOM_B": 4})
        wanted = self.tree(root={"VCPU": 8}, gpu0={"CUSTOM_C": 4}, gpu1={"CUSTOM_D": 4})
        self.check(base, wanted, {"gpu0": {"CUSTOM_A": 1}}, {"gpu0": {"CUSTOM_C": 1}})
        said = self.refused(base, wanted, {"gpu0": {"CUSTOM_A": 1}}, {"gpu1": {"CUSTOM_D": 1}})
        assert "consumer a held 1 of CUSTOM_A and would hold 0" in said

    def test_a_class_of_a_file_on_the_same_device_does_not_hide_where_another_went(self):
        base = self.tree(root={"VCPU": 8}, gpu0={"VGPU": 4})
        wanted = self.tree(root={"VCPU": 8}, gpu0={"CUSTOM_FROM_A_FILE": 1}, gpu1={"CUSTOM_A": 4})
        self.check(base, wanted, {"gpu0": {"VGPU": 2}}, {"gpu1": {"CUSTOM_A": 2}})

    @pytest.mark.parametrize("beside", [{}, {"CUSTOM_FROM_A_FILE": 4}])
    def test_a_class_that_leaves_the_root_may_come_under_other_names(self, beside):
        base = self.tree(root={"VCPU": 8, "VGPU": 4})
        wanted = self.tree(
            root={"VCPU": 8, **beside}, gpu0={"CUSTOM_A": 2}, gpu1={"CUSTOM_B": 2, "VGPU": 2}
        )
        was = {"root": {"VCPU": 1, "VGPU": 3}}
        now = {"root": {"VCPU": 1}, "gpu0": {"CUSTOM_A": 1}, "gpu1": {"CUSTOM_B": 1, "VGPU": 1}}
        self.check(base, wanted, was, now)
        said = self.refused(base, wanted, was, {**now, "gpu0": {"CUSTOM_A": 2}})
        assert "consumer a held 3 of VGPU and would hold 1" in said
        assert "consumer a held 0 of CUSTOM_A and would hold 2" in said

    def test_a_class_of_providers_that_go_may_come_elsewhere_under_another_name(self):
        base = self.tree(root={"VCPU": 8}, gpu0={"VGPU": 4})
        wanted = self.tree(root={"VCPU": 8}, gpu1={"CUSTOM_BIG": 4})
        self.check(base, wanted, {"gpu0": {"VGPU": 2}}, {"gpu1": {"CUSTOM_BIG": 2}})

    def test_what_was_there_before_is_no_new_name(self):
        base = self.tree(root={"VCPU": 8, "VGPU": 4}, gpu0={"CUSTOM_A": 4})
        wanted = self.tree(root={"VCPU": 8}, gpu0={"CUSTOM_A": 4}, gpu1={"VGPU": 4})
        self.check(base, wanted, {"root": {"VGPU": 1}}, {"gpu1": {"VGPU": 1}})
        said = self.refused(base, wanted, {"root": {"VGPU": 1}}, {"gpu0": {"CUSTOM_A": 1}})
        assert "consumer a held 1 of VGPU and would hold 0" in said


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

    def test_they_may_in_the_reshape_that_gives_another_class_a_new_name(self):
        wanted = self.with_nic()
        wanted.update_inventory(ROOT, {"VCPU": {"total": 8}})
        wanted.new_child("host_gpu0", ROOT, GPU0)
        wanted.update_inventory(GPU0, {"CUSTOM_BIG": {"total": 4}})
        after = self.healed()
        after["a"] = record(root={"VCPU": 2}, gpu0={"CUSTOM_BIG": 1}, **WHOLE)
        after["a"]["allocations"][self.NIC] = {"resources": {"CUSTOM_PCI_8086_1889": 1}}
        reshape_check.check(flat(), wanted, BEFORE, after, ROOT)

    def test_they_are_nothing_that_another_class_could_have_become(self):
        wanted = self.with_nic()
        wanted.update_inventory(ROOT, {"VCPU": {"total": 8}})
        after = self.healed()
        after["a"] = record(root={"VCPU": 2}, **WHOLE)
        after["a"]["allocations"][self.NIC] = {"resources": {"CUSTOM_PCI_8086_1889": 1}}
        with pytest.raises(errors.ReshapeFailed, match="consumer a held 1 of VGPU"):
            reshape_check.check(flat(), wanted, BEFORE, after, ROOT)

    def test_some_do_not_make_up_for_others_that_were_counted_before(self):
        base = self.with_nic()
        wanted = self.with_nic()
        second = "00000000-0000-4000-8000-00000000000a"
        wanted.new_child("host_0000:81:00.0", ROOT, second)
        wanted.update_inventory(second, {"CUSTOM_PCI_8086_1889": {"total": 4}})
        wanted.add_traits(second, "COMPUTE_MANAGED_PCI_DEVICE")
        before = self.healed()
        after = reshape_check.editable(before)
        after["b"]["allocations"][second] = {"resources": {"CUSTOM_PCI_8086_1889": 2}}
        reshape_check.check(base, wanted, before, after, ROOT)
        after["b"]["allocations"][self.NIC] = {"resources": {"CUSTOM_PCI_8086_1889": 1}}
        with pytest.raises(errors.ReshapeFailed, match="consumer b held 2 of CUSTOM_PCI_8086_1889"):
            reshape_check.check(base, wanted, before, after, ROOT)
