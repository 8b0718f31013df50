"""GPUs in a layout that make mediated devices, themselves or by virtual functions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compute_agent.discovery.facts import (
    Mdev,
    PciAddress,
    VgpuType,
)
from compute_agent.virt.layout import lay_out
from compute_agent.virt.layout.options import (
    MdevTypeOptions,
)

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


class TestVgpus:
    """GPUs that make mediated devices."""

    def test_total_is_what_exists_and_what_could_be_made(self) -> None:
        gpu = a_gpu(
            mdev_types=offering(("nvidia-35", 12)),
            mdevs=(Mdev("nvidia-35", "u1"), Mdev("nvidia-35", "u2")),
        )
        layout = lay_out("host1", host(gpu), gpu_options(MdevTypeOptions("nvidia-35")))
        assert totals(layout, "_pci_0000_84_00_0") == {"VGPU": 14}
        assert "CUSTOM_MDEV_NVIDIA_35" in named(layout, "_pci_0000_84_00_0").traits

    def test_the_group_of_the_type_sets_class_and_limit(self) -> None:
        gpu = a_gpu(mdev_types=offering(("nvidia-35", 12)))
        chosen = MdevTypeOptions("nvidia-35", (ADDRESS,), "CUSTOM_GRID", 5)
        layout = lay_out("host1", host(gpu), gpu_options(chosen))
        assert totals(layout, "_pci_0000_84_00_0") == {"CUSTOM_GRID": 5}

    def test_a_guest_may_be_kept_from_taking_several(self) -> None:
        gpu = a_gpu(mdev_types=offering(("nvidia-35", 12)))
        options = gpu_options(MdevTypeOptions("nvidia-35"), max_vgpus_per_guest=1)
        record = named(lay_out("host1", host(gpu), options), "_pci_0000_84_00_0").inventory["VGPU"]
        assert (record.total, record.max_unit) == (12, 1)

    def test_a_type_that_names_the_device_goes_before_the_first_type(self) -> None:
        gpu = a_gpu(mdev_types=offering(("a", 4), ("b", 2)))
        options = gpu_options(MdevTypeOptions("a"), MdevTypeOptions("b", (ADDRESS,)))
        assert totals(lay_out("host1", host(gpu), options), "_pci_0000_84_00_0") == {"VGPU": 2}

    def test_the_first_type_without_devices_is_for_all_that_no_type_names(self) -> None:
        other = PciAddress("0000:85:00.0")
        gpu = a_gpu(mdev_types=offering(("a", 4), ("b", 2), ("c", 1)))
        options = gpu_options(
            MdevTypeOptions("a", (other,)), MdevTypeOptions("b"), MdevTypeOptions("c")
        )
        assert totals(lay_out("host1", host(gpu), options), "_pci_0000_84_00_0") == {"VGPU": 2}

    def test_a_type_the_device_does_not_offer_is_warned_about_and_gives_nothing(self) -> None:
        gpu = a_gpu(mdev_types=offering(("a", 4)))
        layout = lay_out("host1", host(gpu), gpu_options(MdevTypeOptions("b")))
        assert devices(layout) == []
        assert any("does not offer the mdev type b" in warning for warning in layout.warnings)

    def test_devices_of_another_type_stop_new_ones_and_keep_the_provider(self) -> None:
        gpu = a_gpu(mdev_types=offering(("a", 0), ("b", 3)), mdevs=(Mdev("a", "u1"),))
        layout = lay_out("host1", host(gpu), gpu_options(MdevTypeOptions("b")))
        assert totals(layout, "_pci_0000_84_00_0") == {}

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
