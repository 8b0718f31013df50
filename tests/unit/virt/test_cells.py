"""CPUs, memory and huge pages: on the root in the flat layout, on the cells in the nested one."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from compute_agent import errors
from compute_agent.discovery.facts import (
    CellId,
    CpuId,
    DiskStore,
    HostTopology,
    HugePages,
    NumaCell,
    PciAddress,
)
from compute_agent.virt.cpu_sets import CpuSets
from compute_agent.virt.fake.topology import MachineSize, fake_topology
from compute_agent.virt.layout import LayoutOptions, lay_out
from compute_agent.virt.layout.options import ReservedPages
from compute_agent.virt.layout.wanted import HostLayout
from tests.unit.virt.wanted_providers import named, names, totals

SMALL = MachineSize(cells=2, cpus_per_cell=4, memory_mib_per_cell=8192, gpus=0, nics=0)
NESTED = LayoutOptions(is_nested=True, reserved_memory_mib=0)


def machine(**size: int) -> HostTopology:
    return fake_topology("host1", replace(SMALL, **size))


def with_cells(*cells: NumaCell) -> HostTopology:
    cpus = tuple(cpu for cell in cells for cpu in cell.cpus)
    return replace(
        machine(),
        cells=cells,
        online_cpus=cpus,
        present_cpus=cpus,
        memory_kib=sum(cell.memory_kib for cell in cells),
    )


def cell(number: int, cpus: range, mib: int, **facts: object) -> NumaCell:
    return NumaCell(CellId(number), tuple(map(CpuId, cpus)), mib * 1024, **facts)  # type: ignore[arg-type]


def reserves(layout: HostLayout, suffix: str = "") -> dict[str, int]:
    return {rc: record.reserved for rc, record in named(layout, suffix).inventory.items()}


def test_a_flat_host_has_everything_on_its_root() -> None:
    layout = lay_out("host1", machine(), LayoutOptions(reserved_cpus=1, reserved_disk_mib=1025))
    assert names(layout) == [""]
    assert totals(layout) == {"VCPU": 8, "MEMORY_MB": 16384, "DISK_GB": 1024}
    assert reserves(layout) == {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 2}
    assert {"HW_ARCH_X86_64", "HW_CPU_X86_AVX2"} <= layout.root.traits


def test_a_nested_host_has_cpus_and_memory_on_its_cells_and_disk_on_its_root() -> None:
    layout = lay_out("host1", machine(), NESTED)
    assert names(layout) == ["", "_NUMA0", "_NUMA1"]
    assert totals(layout) == {"DISK_GB": 1024}
    assert totals(layout, "_NUMA1") == {"VCPU": 4, "MEMORY_MB": 8192}


def test_traits_of_cpus_are_where_the_cpus_are_and_nowhere_else() -> None:
    layout = lay_out("host1", machine(), NESTED)
    assert "HW_CPU_X86_AVX2" in layout.root.absent_traits
    assert "HW_ARCH_X86_64" in layout.root.traits
    assert {"HW_CPU_X86_AVX2", "HW_NUMA_ROOT"} <= named(layout, "_NUMA0").traits
    assert "HW_ARCH_X86_64" not in named(layout, "_NUMA0").traits


def test_dedicated_cpus_are_pcpus_of_the_cell_they_are_on() -> None:
    sets = CpuSets(frozenset({0, 1}), frozenset({3, 4, 5}))
    layout = lay_out("host1", machine(), replace(NESTED, cpu_sets=sets))
    assert totals(layout, "_NUMA0") == {"VCPU": 2, "PCPU": 1, "MEMORY_MB": 8192}
    assert totals(layout, "_NUMA1") == {"PCPU": 2, "MEMORY_MB": 8192}
    assert named(layout, "_NUMA1").inventory["PCPU"].ratio == 1.0


def test_a_dedicated_cpu_that_is_switched_off_counts_on_its_cell() -> None:
    """Even numbers are on one cell, odd ones on the other; power management left two online."""
    cells = tuple(
        cell(number, range(number, number + 1), 8192, offline_cpus=tuple(range(number + 2, 16, 2)))
        for number in range(2)
    )
    facts = replace(with_cells(*cells), present_cpus=tuple(map(CpuId, range(16))))
    sets = CpuSets(frozenset({0, 1}), frozenset(range(2, 16)))
    layout = lay_out("host1", facts, replace(NESTED, cpu_sets=sets, cpu_power_management=True))
    assert [totals(layout, f"_NUMA{number}")["PCPU"] for number in range(2)] == [7, 7]
    assert layout.warnings == ()


def test_a_dedicated_cpu_whose_cell_is_unknown_is_on_the_nearest_with_a_warning() -> None:
    cells = (cell(0, range(3), 8192), cell(1, range(4, 8), 8192))
    facts = replace(with_cells(*cells), present_cpus=tuple(map(CpuId, range(9))))
    sets = CpuSets(frozenset({0, 4}), frozenset({3, 5, 8}))
    options = replace(NESTED, cpu_sets=sets, cpu_power_management=True)
    layout = lay_out("host1", facts, options)
    assert [totals(layout, f"_NUMA{number}")["PCPU"] for number in range(2)] == [1, 2]
    assert ["CPUs 3,8" in warning for warning in layout.warnings] == [True]
    one_cell = replace(facts, cells=(cell(0, range(8), 8192),))
    assert lay_out("host1", one_cell, options).warnings == ()


def test_reserved_memory_is_taken_in_proportion_and_the_rest_from_the_lowest_cell() -> None:
    facts = with_cells(cell(0, range(2), 3000), cell(1, range(2, 4), 6000))
    layout = lay_out("host1", facts, replace(NESTED, reserved_memory_mib=1000))
    assert reserves(layout, "_NUMA0")["MEMORY_MB"] == 334
    assert reserves(layout, "_NUMA1")["MEMORY_MB"] == 666


def test_reserved_memory_may_be_given_per_cell() -> None:
    options = replace(NESTED, reserved_memory_mib=512, reserved_memory_mib_per_cell={1: 700})
    layout = lay_out("host1", machine(), options)
    assert reserves(layout, "_NUMA0")["MEMORY_MB"] == 0
    assert reserves(layout, "_NUMA1")["MEMORY_MB"] == 700


def test_reserved_cpus_are_the_lowest_numbered_ones() -> None:
    layout = lay_out("host1", machine(), replace(NESTED, reserved_cpus=5))
    assert reserves(layout, "_NUMA0")["VCPU"] == 4
    assert reserves(layout, "_NUMA1")["VCPU"] == 1


def test_a_reserve_above_the_total_is_an_error_and_is_clamped() -> None:
    layout = lay_out("host1", machine(), LayoutOptions(reserved_memory_mib=20000))
    assert reserves(layout)["MEMORY_MB"] == 16384
    assert any("20000" in error for error in layout.errors)
    nested = lay_out("host1", machine(), replace(NESTED, reserved_memory_mib=20000))
    assert [reserves(nested, f"_NUMA{number}")["MEMORY_MB"] for number in range(2)] == [8192, 8192]
    assert len(nested.errors) == 1


def test_huge_pages_are_a_child_of_their_cell_which_shrinks_by_as_much() -> None:
    options = replace(NESTED, reserved_pages=(ReservedPages(1, 2048, 3),))
    layout = lay_out("host1", machine(pages_2mib_per_cell=512), options)
    assert totals(layout, "_NUMA0")["MEMORY_MB"] == 8192 - 1024
    pages = named(layout, "_NUMA1_PAGES2048")
    record = pages.inventory["MEMORY_MB"]
    assert (record.total, record.reserved, record.min_unit, record.step_size, record.ratio) == (
        1024,
        6,
        2,
        2,
        1.0,
    )
    assert pages.traits == {"CUSTOM_MEMORY_PAGE_SIZE_2048"}
    assert pages.parent == "numa:1"


def test_pages_below_one_mebibyte_are_counted_in_whole_mebibytes() -> None:
    facts = with_cells(cell(0, range(2), 4096, huge_pages=(HugePages(64, 40),)))
    record = named(lay_out("host1", facts, NESTED), "_NUMA0_PAGES64").inventory["MEMORY_MB"]
    assert (record.total, record.min_unit, record.step_size) == (2, 1, 1)


def test_huge_pages_are_not_visible_in_the_flat_layout() -> None:
    layout = lay_out("host1", machine(pages_2mib_per_cell=512), LayoutOptions())
    assert names(layout) == [""]
    assert totals(layout)["MEMORY_MB"] == 16384


@pytest.mark.parametrize(
    ("reserve", "reason"),
    [(ReservedPages(7, 2048, 1), "cell 7"), (ReservedPages(0, 1048576, 1), "none of this size")],
)
def test_reserving_pages_that_do_not_exist_is_an_error(reserve: ReservedPages, reason: str) -> None:
    options = replace(NESTED, reserved_pages=(reserve,))
    layout = lay_out("host1", machine(pages_2mib_per_cell=8), options)
    assert any(reason in error for error in layout.errors)


def test_a_cell_with_memory_only_has_no_cpus_and_no_traits_of_cpus() -> None:
    facts = with_cells(cell(0, range(4), 4096), cell(2, range(0), 2048))
    layout = lay_out("host1", facts, NESTED)
    assert totals(layout, "_NUMA2") == {"MEMORY_MB": 2048}
    assert not any(t.startswith("HW_CPU") for t in named(layout, "_NUMA2").traits)


def test_a_cell_without_memory_is_merged_into_the_nearest_one_with_a_warning() -> None:
    distances = ((CellId(0), 31), (CellId(1), 10), (CellId(2), 21))
    facts = with_cells(
        cell(0, range(2), 4096),
        cell(1, range(2, 4), 0, distances=distances),
        cell(2, range(4, 6), 4096),
    )
    layout = lay_out("host1", facts, NESTED)
    assert names(layout) == ["", "_NUMA0", "_NUMA2"]
    assert totals(layout, "_NUMA2")["VCPU"] == 4
    assert layout.provider_of == {0: 0, 1: 2, 2: 2}
    assert any("NUMA cell 1" in warning for warning in layout.warnings)


def test_a_gpus_own_memory_is_left_out_unless_asked_for() -> None:
    gpu_memory = cell(9, range(0), 98304, gpu_memory_of=PciAddress("0009:01:00.0"))
    facts = with_cells(cell(0, range(4), 4096), gpu_memory)
    assert names(lay_out("host1", facts, NESTED)) == ["", "_NUMA0"]
    assert totals(lay_out("host1", facts, LayoutOptions()))["MEMORY_MB"] == 4096
    reported = replace(NESTED, gpu=replace(NESTED.gpu, report_memory_cells=True))
    assert totals(lay_out("host1", facts, reported), "_NUMA9") == {"MEMORY_MB": 98304}


def test_cells_together_do_not_have_more_memory_than_the_host() -> None:
    """A kernel before 3.11 counts what it reserves on its nodes: each cell has its part of that."""
    facts = replace(machine(), memory_kib=16001 * 1024)
    layout = lay_out("host1", facts, NESTED)
    assert totals(layout, "_NUMA0")["MEMORY_MB"] == 8000
    assert totals(layout, "_NUMA1")["MEMORY_MB"] == 8001


def test_huge_pages_are_not_cut_where_cells_have_more_memory_than_the_host() -> None:
    pages = (HugePages(1048576, 8),)
    facts = with_cells(cell(0, range(2), 8192, huge_pages=pages), cell(1, range(2, 4), 8192))
    layout = lay_out("host1", replace(facts, memory_kib=16000 * 1024), NESTED)
    assert totals(layout, "_NUMA0_PAGES1048576")["MEMORY_MB"] == 8192
    assert totals(layout, "_NUMA1")["MEMORY_MB"] == 16000 - 8192


def test_a_container_with_a_part_of_the_memory_has_it_on_the_cells_of_its_cpus() -> None:
    facts = with_cells(cell(0, range(0), 65536), cell(1, range(2, 4), 65536))
    layout = lay_out("host1", replace(facts, memory_kib=4096 * 1024), NESTED)
    assert totals(layout, "_NUMA0") == {}
    assert totals(layout, "_NUMA1")["MEMORY_MB"] == 4096


def test_file_backed_memory_takes_the_place_of_the_hosts_memory() -> None:
    options = LayoutOptions(file_backed_memory_mib=100001, reserved_memory_mib=512)
    root, *_devices = lay_out("host1", machine(), options).providers
    memory = root.inventory["MEMORY_MB"]
    assert (memory.total, memory.reserved) == (100001, 0), "what is in files needs no reserve"
    nested = lay_out("host1", machine(), replace(options, is_nested=True))
    assert totals(nested, "_NUMA0")["MEMORY_MB"] == 50001
    assert totals(nested, "_NUMA1")["MEMORY_MB"] == 50000
    all_in_pages = lay_out(
        "host1", machine(pages_2mib_per_cell=4096), replace(options, is_nested=True)
    )
    assert totals(all_in_pages, "_NUMA0")["MEMORY_MB"] == 50001


def test_a_cell_with_neither_cpus_nor_memory_is_left_out() -> None:
    layout = lay_out("host1", with_cells(*machine().cells, cell(2, range(0), 0)), NESTED)
    assert names(layout) == ["", "_NUMA0", "_NUMA1"]
    assert layout.warnings == ()


def test_a_total_placement_cannot_store_is_capped_with_a_warning() -> None:
    facts = replace(machine(), memory_kib=2147483647 * 1024 * 4)
    layout = lay_out("host1", facts, LayoutOptions())
    assert totals(layout)["MEMORY_MB"] == 2147483647
    assert any("more than placement can store" in warning for warning in layout.warnings)


def test_a_class_of_which_there_is_nothing_is_left_out() -> None:
    facts = replace(machine(), disk=DiskStore("/x", 1024**3 - 1))
    assert "DISK_GB" not in totals(lay_out("host1", facts, LayoutOptions()))
    assert "DISK_GB" not in totals(lay_out("host1", replace(facts, disk=None), LayoutOptions()))


def test_the_image_cache_is_reserved_in_whole_gibibytes() -> None:
    options = LayoutOptions(reserved_disk_mib=1, image_cache_bytes=1024**3 + 1)
    assert reserves(lay_out("host1", machine(), options))["DISK_GB"] == 3


def test_cpu_sets_that_do_not_fit_the_machine_are_refused() -> None:
    with pytest.raises(errors.InvalidConfiguration, match="CPUs 90"):
        lay_out("host1", machine(), LayoutOptions(cpu_sets=CpuSets(dedicated_cpus=frozenset({90}))))


@pytest.mark.parametrize("nested", [False, True])
def test_the_order_of_what_the_kernel_listed_does_not_matter(nested: bool) -> None:
    facts = fake_topology("host1", MachineSize(gpus=4, nics=2))
    shuffled = replace(
        facts,
        pci_devices=facts.pci_devices[::-1],
        cpus=facts.cpus[::-1],
    )
    options = LayoutOptions(is_nested=nested)
    assert lay_out("host1", facts, options) == lay_out("host1", shuffled, options)
