"""Totals of vGPUs that a GPU bears, by what NVML reports of it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from compute_agent.discovery.facts import (
    CellId,
    GpuInstance,
    GpuVf,
    Mdev,
    MdevType,
    PciAddress,
    PhysicalGpu,
    VgpuType,
)
from compute_agent.virt.fake.topology import MachineSize, fake_topology
from compute_agent.virt.layout import LayoutOptions, lay_out
from compute_agent.virt.layout.options import GpuOptions, MdevTypeOptions
from compute_agent.virt.layout.wanted import HostLayout, WantedRecord

from .wanted_providers import named, totals

NOTHING = MachineSize(cells=1, cpus_per_cell=4, memory_mib_per_cell=8192, gpus=0, nics=0)
ADDRESS = PciAddress("0000:84:00.0")
GPU = "_pci_0000_84_00_0"
BIG, SMALL = "nvidia-24", "nvidia-8"
FUNCTIONS = tuple(PciAddress(f"0000:84:01.{number}") for number in range(8))


def kind(name: str, most: int | None, size_mib: int | None = None, **more: Any) -> VgpuType:
    facts = {"max_instances_per_guest": None, "gpu_instance_profile": None, **more}
    return VgpuType(name, name, size_mib, most, **facts)


KINDS = (kind(BIG, 2, 24576), kind(SMALL, 6, 8192))


def sriov(
    types: tuple[VgpuType, ...] = KINDS, made: dict[int, str] | None = None, **facts: Any
) -> PhysicalGpu:
    """A GPU of 8 functions, each of which offers both types; `made`: function -> its vGPU.

    The vGPUs are those of the vendor's own VFIO driver, which have no uuid.
    """
    made = made or {}
    vfs = tuple(
        GpuVf(
            address,
            index,
            CellId(0),
            mdev_types=() if index in made else (MdevType(BIG, 1), MdevType(SMALL, 1)),
            mdevs=(Mdev(made[index], None),) if index in made else (),
        )
        for index, address in enumerate(FUNCTIONS)
    )
    return PhysicalGpu(ADDRESS, "10de", "2235", CellId(0), vfs=vfs, vgpu_types=types, **facts)


HALVES = (
    MdevTypeOptions(BIG, FUNCTIONS[:4], "CUSTOM_BIG"),
    MdevTypeOptions(SMALL, FUNCTIONS[4:], "CUSTOM_SMALL"),
)


def laid_out(gpu: PhysicalGpu, *types: MdevTypeOptions, **options: Any) -> HostLayout:
    facts = replace(fake_topology("host1", NOTHING), gpus=(gpu,))
    return lay_out("host1", facts, LayoutOptions(gpu=GpuOptions(mdev_types=types, **options)))


def record(gpu: PhysicalGpu, *types: MdevTypeOptions, **options: Any) -> WantedRecord:
    return named(laid_out(gpu, *types, **options), GPU).inventory["VGPU"]


@pytest.mark.parametrize("made", [{}, {0: BIG}, {0: BIG, 7: BIG}], ids=str)
def test_a_gpu_bears_no_more_than_nvml_reports(made: dict[int, str]) -> None:
    assert totals(laid_out(sriov(made=made), MdevTypeOptions(BIG)), GPU) == {"VGPU": 2}


def test_a_gpu_without_functions_bears_no_more_than_nvml_reports_and_has_as_many_places() -> None:
    gpu = PhysicalGpu(
        ADDRESS,
        "10de",
        "1db4",
        CellId(0),
        mdev_types=(MdevType(BIG, 7),),
        mdevs=(Mdev(BIG, "u"),),
        vgpu_types=KINDS,
    )
    layout = laid_out(gpu, MdevTypeOptions(BIG))
    assert totals(layout, GPU) == {"VGPU": 2}
    assert named(layout, GPU).units == {"VGPU": (f"{ADDRESS}/0", f"{ADDRESS}/1")}


@pytest.mark.parametrize(
    ("by_nvml", "by_option", "most"),
    [(None, None, 6), (1, None, 1), (4, None, 4), (4, 2, 2), (2, 4, 2), (16, None, 6), (0, 2, 2)],
)
def test_one_guest_gets_no_more_than_the_driver_or_the_operator_allow(
    by_nvml: int | None, by_option: int | None, most: int
) -> None:
    other = kind(BIG, 2, 24576, max_instances_per_guest=1)
    types = (kind(SMALL, 6, 8192, max_instances_per_guest=by_nvml), other)
    found = record(sriov(types), MdevTypeOptions(SMALL), max_vgpus_per_guest=by_option)
    assert (found.total, found.max_unit) == (6, most)


def test_while_all_vgpus_are_of_one_size_only_that_of_the_first_is_offered() -> None:
    layout = laid_out(sriov(vgpu_sizes_mixed=False), *HALVES)
    assert totals(layout, GPU) == {"CUSTOM_BIG": 2}
    (warning,) = (w for w in layout.warnings if "no room" in w)
    assert SMALL in warning
    assert "nvidia-smi vgpu -shm 1" in warning


def test_what_exists_decides_on_the_size() -> None:
    layout = laid_out(sriov(vgpu_sizes_mixed=False, made={5: SMALL}), *HALVES)
    assert totals(layout, GPU) == {"CUSTOM_SMALL": 4}


def test_types_of_one_size_share_the_gpu_without_mixed_sizes() -> None:
    types = (kind(BIG, 2, 24576), kind(SMALL, 2, 24576))
    layout = laid_out(sriov(types, vgpu_sizes_mixed=False), *HALVES)
    assert totals(layout, GPU) == {"CUSTOM_BIG": 1, "CUSTOM_SMALL": 1}


PLACED = (
    kind(BIG, 2, 24576, placements=(0, 24), placement_size=24),
    kind(SMALL, 6, 8192, placements=(0, 16, 24, 40), placement_size=8),
)


def test_mixed_sizes_have_places_that_do_not_overlap() -> None:
    layout = laid_out(sriov(PLACED, vgpu_sizes_mixed=True), *HALVES)
    assert totals(layout, GPU) == {"CUSTOM_BIG": 1, "CUSTOM_SMALL": 2}


def test_fewer_fit_where_sizes_are_mixed_than_where_all_are_of_one() -> None:
    types = MdevTypeOptions(SMALL)
    mixed = laid_out(sriov(PLACED, vgpu_sizes_mixed=True), types)
    assert totals(mixed, GPU) == {"VGPU": 4}
    assert totals(laid_out(sriov(PLACED, vgpu_sizes_mixed=False), types), GPU) == {"VGPU": 6}


@pytest.mark.parametrize("mixed", [True, None])
def test_without_places_what_one_type_has_is_its_share_of_the_gpu(mixed: bool | None) -> None:
    layout = laid_out(sriov(vgpu_sizes_mixed=mixed), *HALVES)
    assert totals(layout, GPU) == {"CUSTOM_BIG": 1, "CUSTOM_SMALL": 3}


@pytest.mark.parametrize("made", [{}, {5: SMALL}], ids=str)
def test_a_limit_of_one_type_leaves_the_rest_to_the_other(made: dict[int, str]) -> None:
    big, small = HALVES
    gpu = sriov((kind(BIG, 4), kind(SMALL, 6)), made)
    assert totals(laid_out(gpu, *HALVES), GPU) == {"CUSTOM_BIG": 2, "CUSTOM_SMALL": 3}
    layout = laid_out(gpu, big, replace(small, max_instances=1))
    assert totals(layout, GPU) == {"CUSTOM_BIG": 3, "CUSTOM_SMALL": 1}


def test_a_limit_is_of_its_own_type_where_two_have_one_class() -> None:
    big, small = (replace(half, resource_class="VGPU") for half in HALVES)
    layout = laid_out(sriov(), replace(big, max_instances=1), replace(small, max_instances=3))
    assert totals(layout, GPU) == {"VGPU": 4}


BACKED = (
    kind(BIG, 2, 40192, gpu_instance_profile=9),
    kind(SMALL, 7, 9728, gpu_instance_profile=19),
)
PARTS = (GpuInstance(0, 4, 9, 1), GpuInstance(4, 1, 19, 7), GpuInstance(5, 1, 19, 8))


def test_vgpus_on_mig_are_as_many_as_there_are_gpu_instances_of_their_profiles() -> None:
    gpu = sriov(BACKED, mig_enabled=True, gpu_instances=PARTS)
    assert totals(laid_out(gpu, *HALVES), GPU) == {"CUSTOM_BIG": 1, "CUSTOM_SMALL": 2}


def test_several_vgpus_may_share_the_time_of_one_gpu_instance() -> None:
    types = (kind(SMALL, 14, 4864, gpu_instance_profile=19, max_instances_per_gpu_instance=2),)
    gpu = sriov(types, mig_enabled=True, gpu_instances=PARTS)
    assert totals(laid_out(gpu, MdevTypeOptions(SMALL)), GPU) == {"VGPU": 4}


def test_without_a_gpu_instance_of_the_profile_the_operator_is_told_to_make_one() -> None:
    gpu = sriov(BACKED, mig_enabled=True, gpu_instances=PARTS[1:])
    layout = laid_out(gpu, MdevTypeOptions(BIG))
    assert totals(layout, GPU) == {}
    assert any("nvidia-smi mig -cgi" in warning for warning in layout.warnings)


def test_where_gpu_instances_are_not_reported_what_fits_of_each_type_bounds_it() -> None:
    gpu = sriov(BACKED, mig_enabled=True)
    assert totals(laid_out(gpu, MdevTypeOptions(BIG)), GPU) == {"VGPU": 2}
