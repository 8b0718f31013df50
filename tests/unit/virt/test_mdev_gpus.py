"""GPUs in a layout that make mediated devices, themselves or by virtual functions."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from compute_agent.discovery.facts import Mdev, PciAddress, VgpuType
from compute_agent.virt.layout import lay_out
from compute_agent.virt.layout.options import MdevTypeOptions

from .hosts_with_devices import (
    ADDRESS,
    a_gpu,
    devices,
    fitting,
    gpu_options,
    host,
    offering,
    sriov_gpu,
)
from .wanted_providers import named, totals

OTHER = PciAddress("0000:85:00.0")


class TestVgpus:
    """GPUs that make mediated devices."""

    @pytest.mark.parametrize(
        ("offered", "made", "types", "expected"),
        [
            ({"a": 12}, "a a", (MdevTypeOptions("a"),), {"VGPU": 14}),
            (
                {"a": 12},
                "",
                (MdevTypeOptions("a", (ADDRESS,), "CUSTOM_GRID", 5),),
                {"CUSTOM_GRID": 5},
            ),
            (
                {"a": 4, "b": 2},
                "",
                (MdevTypeOptions("a"), MdevTypeOptions("b", (ADDRESS,))),
                {"VGPU": 2},
            ),
            (
                {"a": 4, "b": 2, "c": 1},
                "",
                (MdevTypeOptions("a", (OTHER,)), MdevTypeOptions("b"), MdevTypeOptions("c")),
                {"VGPU": 2},
            ),
            ({"a": 0, "b": 3}, "a", (MdevTypeOptions("b"),), {}),
        ],
        ids=[
            "what exists and what could be made",
            "the type sets class and limit",
            "a type that names the device goes before the first type",
            "the first type without devices is for all that no type names",
            "devices of another type stop new ones and keep the provider",
        ],
    )
    def test_the_total_is_of_one_type(
        self,
        offered: dict[str, int],
        made: str,
        types: tuple[MdevTypeOptions, ...],
        expected: dict[str, int],
    ) -> None:
        gpu = a_gpu(
            mdev_types=offering(*offered.items()),
            mdevs=tuple(Mdev(name, f"u{n}") for n, name in enumerate(made.split())),
        )
        layout = lay_out("host1", host(gpu), gpu_options(*types))
        assert totals(layout, "_pci_0000_84_00_0") == expected
        of_one_type = next((t.type_id for t in types if ADDRESS in t.device_addresses), None)
        if of_one_type:
            trait = f"CUSTOM_MDEV_{of_one_type.upper()}"
            assert trait in named(layout, "_pci_0000_84_00_0").traits

    def test_a_guest_may_be_kept_from_taking_several(self) -> None:
        gpu = a_gpu(mdev_types=offering(("nvidia-35", 12)))
        options = gpu_options(MdevTypeOptions("nvidia-35"), max_vgpus_per_guest=1)
        record = named(lay_out("host1", host(gpu), options), "_pci_0000_84_00_0").inventory["VGPU"]
        assert (record.total, record.max_unit) == (12, 1)

    def test_a_type_the_device_does_not_offer_is_warned_about_and_gives_nothing(self) -> None:
        gpu = a_gpu(mdev_types=offering(("a", 4)))
        layout = lay_out("host1", host(gpu), gpu_options(MdevTypeOptions("b")))
        assert devices(layout) == []
        assert any("does not offer the mdev type b" in warning for warning in layout.warnings)

    def test_a_gpu_hangs_under_its_cell_or_where_the_operator_says(self) -> None:
        gpu = a_gpu()
        layout = lay_out("host1", host(gpu), gpu_options(nested=True))
        assert named(layout, "_pci_0000_84_00_0").parent == "numa:1"
        options = gpu_options(nested=True, numa_node_override={ADDRESS: 0})
        assert named(lay_out("host1", host(gpu), options), "_pci_0000_84_00_0").parent == "numa:0"

    def test_a_gpu_of_unknown_cell_hangs_under_the_root_of_a_host_with_several(self) -> None:
        facts = host(a_gpu(numa_node=None))
        layout = lay_out("host1", facts, gpu_options(nested=True))
        assert named(layout, "_pci_0000_84_00_0").parent == ""
        one = replace(facts, cells=facts.cells[:1], online_cpus=facts.cells[0].cpus)
        layout = lay_out("host1", one, gpu_options(nested=True))
        assert named(layout, "_pci_0000_84_00_0").parent == "numa:0"


class TestSriovGpus:
    """GPUs whose virtual functions make one vGPU each."""

    OPTIONS = gpu_options(MdevTypeOptions("nvidia-35"))

    def test_functions_are_counted_on_their_gpu(self) -> None:
        layout = lay_out("host1", host(sriov_gpu()), self.OPTIONS)
        assert devices(layout) == ["_pci_0000_84_00_0"]
        assert totals(layout, "_pci_0000_84_00_0") == {"VGPU": 3}

    def test_a_tree_with_a_provider_per_function_is_continued(self) -> None:
        layout = lay_out(
            "host1",
            host(sriov_gpu()),
            self.OPTIONS,
            existing_names=frozenset({"host1_pci_0000_84_00_5"}),
        )
        assert devices(layout) == [f"_pci_0000_84_00_{n}" for n in (4, 5, 6)]
        assert totals(layout, "_pci_0000_84_00_4") == {"VGPU": 1}

    def test_the_operator_may_ask_for_a_provider_per_function(self) -> None:
        options = gpu_options(MdevTypeOptions("nvidia-35"), vf_providers="per_vf", nested=True)
        layout = lay_out("host1", host(sriov_gpu(uuid="GPU-1")), options)
        assert totals(layout, "_pci_0000_84_00_6") == {"VGPU": 1}
        assert totals(layout, "_pci_0000_84_00_0") == {}
        assert len({p.key for p in layout.providers}) == len(layout.providers)
        keys = [p.key for p in layout.providers if p.inventory.keys() == {"VGPU"}]
        assert keys == [f"GPU-1:vf:{n}" for n in range(3)], "which move with the card"

    @pytest.mark.parametrize("most", [0, 1, 2])
    def test_no_more_are_counted_than_nvml_says_fit_on_the_gpu(self, most: int) -> None:
        layout = lay_out("host1", host(sriov_gpu(vgpu_types=fitting(most))), self.OPTIONS)
        assert totals(layout, "_pci_0000_84_00_0") == ({"VGPU": most} if most else {})
        units = named(layout, "_pci_0000_84_00_0").units["VGPU"]
        assert len(units) == 3, "any of the functions may make it"

    @pytest.mark.parametrize(
        "types", [(), fitting(None), fitting(7), fitting(1, "nvidia-36")], ids=str
    )
    def test_where_nvml_does_not_say_or_more_fit_all_functions_are_counted(
        self, types: tuple[VgpuType, ...]
    ) -> None:
        layout = lay_out("host1", host(sriov_gpu(vgpu_types=types)), self.OPTIONS)
        assert totals(layout, "_pci_0000_84_00_0") == {"VGPU": 3}

    def test_of_a_provider_per_function_as_many_have_one_as_fit_those_in_use_first(self) -> None:
        gpu = sriov_gpu(vgpu_types=fitting(2))
        first, second, third = gpu.vfs
        third = replace(
            third, mdev_types=offering(("nvidia-35", 0)), mdevs=(Mdev("nvidia-35", "u"),)
        )
        options = gpu_options(MdevTypeOptions("nvidia-35"), vf_providers="per_vf")
        layout = lay_out("host1", host(replace(gpu, vfs=(first, second, third))), options)
        assert [totals(layout, f"_pci_0000_84_00_{n}") for n in (4, 5, 6)] == [
            {"VGPU": 1},
            {},
            {"VGPU": 1},
        ]

    def test_vgpus_that_exist_are_counted_whatever_nvml_says(self) -> None:
        gpu = sriov_gpu(vgpu_types=fitting(1))
        used = tuple(
            replace(vf, mdev_types=(), mdevs=(Mdev("nvidia-35", f"u{vf.index}"),)) for vf in gpu.vfs
        )
        layout = lay_out("host1", host(replace(gpu, vfs=used)), self.OPTIONS)
        assert totals(layout, "_pci_0000_84_00_0") == {"VGPU": 3}

    def test_a_limit_counts_for_the_whole_gpu(self) -> None:
        options = gpu_options(MdevTypeOptions("nvidia-35", max_instances=2))
        layout = lay_out("host1", host(sriov_gpu()), options)
        assert totals(layout, "_pci_0000_84_00_0") == {"VGPU": 2}
