"""A reshape proposed by a driver: nothing lost, nothing overbooked, nobody else's touched."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compute_agent import errors
from compute_agent.provider_tree import ProviderTree
from compute_agent.tracker.passes import reshape_check
from compute_agent.virt.driver import ClassChange

ROOT = "00000000-0000-4000-8000-000000000001"
GPU0 = "00000000-0000-4000-8000-000000000002"
GPU1 = "00000000-0000-4000-8000-000000000003"
POOL = "00000000-0000-4000-8000-00000000000f"
ELSEWHERE = "00000000-0000-4000-8000-0000000000ff"
NIC = "00000000-0000-4000-8000-000000000009"
NIC2 = "00000000-0000-4000-8000-00000000000a"
PLACES = {
    "root": ROOT,
    "gpu0": GPU0,
    "gpu1": GPU1,
    "nic": NIC,
    "nic2": NIC2,
    "pool": POOL,
    "elsewhere": ELSEWHERE,
}
NIC_CLASS = "CUSTOM_PCI_8086_1889"


def record(**allocations: dict[str, int]) -> dict:
    return {
        "allocations": {
            PLACES[place]: {"generation": 7, "resources": resources}
            for place, resources in allocations.items()
        },
        "project_id": "p",
        "user_id": "u",
        "consumer_generation": 1,
    }


def tree(**totals: dict[str, int]) -> ProviderTree:
    """Return a root, devices below it with these totals, and a storage pool beside it."""
    tree = ProviderTree()
    tree.new_root("host", ROOT, 1)
    for place, classes in totals.items():
        if place != "root":
            tree.new_child(f"host_{place}", ROOT, PLACES[place])
        inventory = {resource_class: {"total": total} for resource_class, total in classes.items()}
        tree.update_inventory(PLACES[place], inventory)
    tree.new_root("pool", POOL, 1)
    tree.update_inventory(POOL, {"DISK_GB": {"total": 100}})
    tree.update_traits(POOL, ["MISC_SHARES_VIA_AGGREGATE"])
    return tree


def flat() -> ProviderTree:
    return tree(root={"VCPU": 8, "VGPU": 4})


def nested() -> ProviderTree:
    return tree(root={"VCPU": 8}, gpu0={"VGPU": 2}, gpu1={"VGPU": 2})


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


def changes(base, wanted, was: list[dict], now: list[dict], declared=()) -> list[str]:
    """Check consumers c0, c1, ... whose holdings are given by place; return what became of them."""
    before, after = (
        {f"c{i}": record(**places) for i, places in enumerate(held)} for held in (was, now)
    )
    found = reshape_check.check(base, wanted, before, after, ROOT, declared)
    return [str(change) for change in found]


def refused(base, wanted, was: list[dict], now: list[dict], declared=()) -> str:
    with pytest.raises(errors.ReshapeFailed) as caught:
        changes(base, wanted, was, now, declared)
    return caught.value.error


class TestSumsByClass:
    """What a consumer held of a class it still holds of that class, or of what the class became."""

    @pytest.mark.parametrize(
        ("was", "now"), [("VGPU", "VCPU"), ("VCPU", "VGPU"), ("VGPU", "PCPU"), ("PCPU", "VGPU")]
    )
    def test_an_equal_number_of_another_class_is_no_compensation(self, was, now):
        """Though the class goes from the root and other classes come, as layouts change."""
        kept = {"VCPU", "PCPU"} - {was, now}
        totals = dict.fromkeys(kept, 8)
        base = tree(root={**totals, was: 8})
        wanted = tree(root=totals, gpu0={now: 8})
        said = refused(base, wanted, [{"root": {was: 1}}], [{"gpu0": {now: 1}}])
        assert f"consumer c0 held 1 of {was} and would hold 0" in said
        assert f"consumer c0 held 0 of {now} and would hold 1" in said

    @pytest.mark.parametrize(("was", "now"), [("VCPU", "PCPU"), ("PCPU", "VCPU")])
    def test_cpus_change_their_kind_one_for_one(self, was, now):
        base = tree(root={was: 8})
        wanted = tree(root={"VCPU": 8, "PCPU": 8})
        changes(base, wanted, [{"root": {was: 3}}], [{"root": {was: 1, now: 2}}])
        changes(base, wanted, [{"root": {was: 3}}], [{"root": {now: 3}}])
        said = refused(base, wanted, [{"root": {was: 3}}], [{"root": {was: 1, now: 3}}])
        assert f"consumer c0 held 3 of {was} and would hold 1" in said

    def test_a_class_that_goes_from_a_device_may_become_the_one_that_comes(self):
        base = tree(root={"VCPU": 8}, gpu0={"VGPU": 4}, gpu1={"VGPU": 4})
        wanted = tree(root={"VCPU": 8}, gpu0={"VGPU": 4}, gpu1={"CUSTOM_BIG": 4})
        held = {"gpu0": {"VGPU": 1}, "gpu1": {"VGPU": 2}}
        changes(base, wanted, [held], [{"gpu0": {"VGPU": 1}, "gpu1": {"CUSTOM_BIG": 2}}])
        said = refused(base, wanted, [held], [{"gpu0": {"VGPU": 2}, "gpu1": {"CUSTOM_BIG": 2}}])
        assert "consumer c0 held 0 of CUSTOM_BIG and would hold 2" in said
        said = refused(base, wanted, [held], [{"gpu1": {"CUSTOM_BIG": 3}}])
        assert "consumer c0 held 3 of VGPU and would hold 0" in said, "it is still there on gpu0"

    def test_names_given_on_one_device_are_not_those_of_another(self):
        base = tree(root={"VCPU": 8}, gpu0={"CUSTOM_A": 4}, gpu1={"CUSTOM_B": 4})
        wanted = tree(root={"VCPU": 8}, gpu0={"CUSTOM_C": 4}, gpu1={"CUSTOM_D": 4})
        changes(base, wanted, [{"gpu0": {"CUSTOM_A": 1}}], [{"gpu0": {"CUSTOM_C": 1}}])
        said = refused(base, wanted, [{"gpu0": {"CUSTOM_A": 1}}], [{"gpu1": {"CUSTOM_D": 1}}])
        assert "consumer c0 held 1 of CUSTOM_A and would hold 0" in said

    def test_a_class_of_a_file_on_the_same_device_does_not_hide_where_another_went(self):
        base = tree(root={"VCPU": 8}, gpu0={"VGPU": 4})
        wanted = tree(root={"VCPU": 8}, gpu0={"CUSTOM_FROM_A_FILE": 1}, gpu1={"CUSTOM_A": 4})
        changes(base, wanted, [{"gpu0": {"VGPU": 2}}], [{"gpu1": {"CUSTOM_A": 2}}])

    @pytest.mark.parametrize("beside", [{}, {"CUSTOM_FROM_A_FILE": 4}])
    def test_a_class_that_leaves_the_root_may_come_under_other_names(self, beside):
        base = tree(root={"VCPU": 8, "VGPU": 4})
        wanted = tree(
            root={"VCPU": 8, **beside}, gpu0={"CUSTOM_A": 2}, gpu1={"CUSTOM_B": 2, "VGPU": 2}
        )
        was = {"root": {"VCPU": 1, "VGPU": 3}}
        now = {"root": {"VCPU": 1}, "gpu0": {"CUSTOM_A": 1}, "gpu1": {"CUSTOM_B": 1, "VGPU": 1}}
        changes(base, wanted, [was], [now])
        said = refused(base, wanted, [was], [{**now, "gpu0": {"CUSTOM_A": 2}}])
        assert "consumer c0 held 3 of VGPU and would hold 1" in said
        assert "consumer c0 held 0 of CUSTOM_A and would hold 2" in said

    def test_a_class_of_providers_that_go_may_come_elsewhere_under_another_name(self):
        base = tree(root={"VCPU": 8}, gpu0={"VGPU": 4})
        wanted = tree(root={"VCPU": 8}, gpu1={"CUSTOM_BIG": 4})
        changes(base, wanted, [{"gpu0": {"VGPU": 2}}], [{"gpu1": {"CUSTOM_BIG": 2}}])

    def test_what_was_there_before_is_no_new_name(self):
        base = tree(root={"VCPU": 8, "VGPU": 4}, gpu0={"CUSTOM_A": 4})
        wanted = tree(root={"VCPU": 8}, gpu0={"CUSTOM_A": 4}, gpu1={"VGPU": 4})
        changes(base, wanted, [{"root": {"VGPU": 1}}], [{"gpu1": {"VGPU": 1}}])
        said = refused(base, wanted, [{"root": {"VGPU": 1}}], [{"gpu0": {"CUSTOM_A": 1}}])
        assert "consumer c0 held 1 of VGPU and would hold 0" in said


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

    def with_nic(self, *, managed: bool = True, **totals: dict[str, int]) -> ProviderTree:
        wanted = tree(**{"root": {"VCPU": 8, "VGPU": 4}, "nic": {NIC_CLASS: 4}, **totals})
        if managed:
            for nic in (NIC, NIC2):
                if wanted.exists(nic):
                    wanted.add_traits(nic, "COMPUTE_MANAGED_PCI_DEVICE")
        return wanted

    def healed(self) -> dict:
        after = reshape_check.editable(BEFORE)
        after["b"]["allocations"][NIC] = {"resources": {NIC_CLASS: 2}}
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
        after["a"]["allocations"][NIC] = {"resources": {NIC_CLASS: 2}}
        with pytest.raises(errors.ReshapeFailed, match="held 2 of VCPU"):
            reshape_check.check(flat(), self.with_nic(), BEFORE, after, ROOT)

    def test_they_may_in_the_reshape_that_gives_another_class_a_new_name(self):
        wanted = self.with_nic(root={"VCPU": 8}, gpu0={"CUSTOM_BIG": 4})
        places = {"root": {"VCPU": 2}, "gpu0": {"CUSTOM_BIG": 1}, "nic": {NIC_CLASS: 1}}
        after = {**self.healed(), "a": record(**places, **WHOLE)}
        reshape_check.check(flat(), wanted, BEFORE, after, ROOT)

    def test_they_are_nothing_that_another_class_could_have_become(self):
        wanted = self.with_nic(root={"VCPU": 8})
        after = {
            **self.healed(),
            "a": record(root={"VCPU": 2}, nic={NIC_CLASS: 1}, **WHOLE),
        }
        with pytest.raises(errors.ReshapeFailed, match="consumer a held 1 of VGPU"):
            reshape_check.check(flat(), wanted, BEFORE, after, ROOT)

    def test_some_do_not_make_up_for_others_that_were_counted_before(self):
        base, wanted = self.with_nic(), self.with_nic(nic2={NIC_CLASS: 4})
        before = self.healed()
        after = reshape_check.editable(before)
        after["b"]["allocations"][NIC2] = {"resources": {NIC_CLASS: 2}}
        reshape_check.check(base, wanted, before, after, ROOT)
        after["b"]["allocations"][NIC] = {"resources": {NIC_CLASS: 1}}
        with pytest.raises(errors.ReshapeFailed, match="consumer b held 2 of CUSTOM_PCI_8086_1889"):
            reshape_check.check(base, wanted, before, after, ROOT)


class TestClassesThatBecomeOthers:
    """The third use case: a class gets another name, size or place, and allocations follow."""

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ("CUSTOM_FPGA_XILINX", "FPGA"),
            ("CUSTOM_NIC_VF", "SRIOV_NET_VF"),
            ("CUSTOM_GPU", "PGPU"),
            ("CUSTOM_BW", "NET_BW_EGR_KILOBIT_PER_SEC"),
        ],
    )
    def test_a_custom_class_gets_a_standard_name_on_the_root_or_on_the_way_to_a_child(
        self, old, new
    ):
        base, was = tree(root={"VCPU": 8, old: 4}), [{"root": {old: 1, "VCPU": 1}}]
        said = changes(base, tree(root={"VCPU": 8, new: 4}), was, [{"root": {new: 1, "VCPU": 1}}])
        assert said == [f"{old} becomes {new}"]
        moved_on = [{"root": {"VCPU": 1}, "gpu0": {new: 1}}]
        assert changes(base, tree(root={"VCPU": 8}, gpu0={new: 4}), was, moved_on) == said

    def test_a_class_of_a_child_gets_another_name_and_total(self):
        base, wanted = tree(root={}, gpu0={"CUSTOM_FPGA": 4}), tree(root={}, gpu0={"FPGA": 3})
        said = changes(base, wanted, [{"gpu0": {"CUSTOM_FPGA": 2}}], [{"gpu0": {"FPGA": 2}}])
        assert said == ["CUSTOM_FPGA becomes FPGA"]

    @pytest.mark.parametrize(
        ("totals", "amounts", "said"),
        [
            ((10, 10_000), ((2, 2_000), (3, 3_000)), "1000 for each 1"),
            ((10_240, 10), ((2_048, 2), (1_024, 1)), "1 for each 1024"),
        ],
    )
    def test_units_of_another_size_show_by_the_amounts_of_all_consumers(
        self, totals, amounts, said
    ):
        base, wanted = tree(root={"CUSTOM_BW": totals[0]}), tree(root={"CUSTOM_BPS": totals[1]})
        was = [{"root": {"CUSTOM_BW": n}} for n, _ in amounts]
        now = [{"root": {"CUSTOM_BPS": n}} for _, n in amounts]
        assert changes(base, wanted, was, now) == [f"CUSTOM_BW becomes CUSTOM_BPS, {said}"]
        now[0]["root"]["CUSTOM_BPS"] += 1
        assert "consumer c0 held" in refused(base, wanted, was, now)

    def test_equal_totals_mean_units_of_equal_size(self):
        base, wanted = tree(root={"CUSTOM_A": 8}), tree(root={"FPGA": 8})
        assert "c0 held 2 of CUSTOM_A" in refused(
            base, wanted, [{"root": {"CUSTOM_A": 2}}], [{"root": {"FPGA": 1}}]
        )

    def test_a_declared_change_needs_no_other_evidence_and_rounds_up(self):
        base = tree(root={"CUSTOM_KIB": 8_192, "MEMORY_MB": 64})
        wanted = tree(root={"MEMORY_MB": 72})
        was = [{"root": {"CUSTOM_KIB": 1_500, "MEMORY_MB": 4}}]
        now = [{"root": {"MEMORY_MB": 6}}]
        declared = [ClassChange("CUSTOM_KIB", "MEMORY_MB", Fraction(1, 1024))]
        assert "c0 held 1500 of CUSTOM_KIB" in refused(base, wanted, was, now)
        said = ["CUSTOM_KIB becomes MEMORY_MB, 1 for each 1024"]
        assert changes(base, wanted, was, now, declared) == said
        for wrong in (5, 7):
            with pytest.raises(errors.ReshapeFailed, match="c0 held"):
                changes(base, wanted, was, [{"root": {"MEMORY_MB": wrong}}], declared)

    def test_a_disk_of_the_root_goes_to_a_sharing_provider_where_that_is_declared(self):
        base, wanted = tree(root={"VCPU": 8, "DISK_GB": 50}), tree(root={"VCPU": 8})
        was, now = (
            [{"root": {"VCPU": 1, "DISK_GB": 5}}],
            [{"root": {"VCPU": 1}, "pool": {"DISK_GB": 5}}],
        )
        declared = [ClassChange("DISK_GB", "DISK_GB", provider=POOL)]
        assert "on other trees were changed" in refused(base, wanted, was, now)
        said = [f"DISK_GB becomes DISK_GB, on sharing provider {POOL}"]
        assert changes(base, wanted, was, now, declared) == said
        now[0]["pool"]["DISK_GB"] = 4
        assert "c0 held 5 of DISK_GB" in refused(base, wanted, was, now, declared)
        elsewhere = [ClassChange("DISK_GB", "DISK_GB", provider=ELSEWHERE)]
        assert "on other trees were changed" in refused(
            base, wanted, was, [{"root": {"VCPU": 1}, "elsewhere": {"DISK_GB": 5}}], elsewhere
        )
