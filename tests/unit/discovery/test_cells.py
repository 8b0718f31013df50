"""NUMA cells, the odd ones first."""

from __future__ import annotations

import pytest

from compute_agent.discovery.errors import DiscoveryError
from compute_agent.discovery.facts import HugePages
from tests.unit.discovery.conftest import Machine


def test_cells_have_cpus_memory_and_distances(two_cells: Machine) -> None:
    first, second = two_cells.look().cells
    assert (first.id, first.cpus, first.memory_kib) == (0, (0, 1), 1 << 20)
    assert first.distances == ((0, 10), (1, 21))
    assert second.distances == ((0, 21), (1, 10))


def test_gaps_in_node_numbers_do_not_shift_distances(machine: Machine) -> None:
    machine.memory(3 << 20)
    machine.cpus("0-5")
    machine.nodes("0,2,8")
    machine.node(0, cpus="0-1", memory_kib=1 << 20, distance="10 20 40")
    machine.node(2, cpus="2-3", memory_kib=1 << 20, distance="20 10 40")
    machine.node(8, cpus="4-5", memory_kib=1 << 20, distance="40 40 10")
    topology = machine.look()
    assert [cell.id for cell in topology.cells] == [0, 2, 8]
    assert topology.cells[1].distances == ((0, 20), (2, 10), (8, 40))
    assert topology.warnings == ()


def test_a_memory_only_node_is_a_cell_without_cpus(two_cells: Machine) -> None:
    two_cells.cpus("0-1")
    two_cells.node(1, cpus="", memory_kib=1 << 20, distance="21 10")
    assert [cell.cpus for cell in two_cells.look().cells] == [(0, 1), ()]


def test_a_node_without_memory_is_a_cell_without_memory(two_cells: Machine) -> None:
    two_cells.memory(1 << 20)
    two_cells.node(1, cpus="2-3", memory_kib=0, distance="21 10")
    assert [cell.memory_kib for cell in two_cells.look().cells] == [1 << 20, 0]


def test_without_numa_the_host_is_one_cell_with_its_huge_pages(machine: Machine) -> None:
    machine.remove("sys/devices/system/node")
    machine.huge_pages(None, 2048, total=8, free=3)
    topology = machine.look()
    (cell,) = topology.cells
    assert (cell.id, cell.cpus, cell.memory_kib) == (0, (0, 1), 1 << 20)
    assert cell.huge_pages == (HugePages(2048, 8),)
    assert topology.warnings == ()


def test_huge_pages_are_listed_by_size(machine: Machine) -> None:
    machine.huge_pages(0, 1048576, total=2, free=1)
    machine.huge_pages(0, 2048, total=100, free=50)
    pools = machine.look().cells[0].huge_pages
    assert [(pool.size_kib, pool.total) for pool in pools] == [(2048, 100), (1048576, 2)]


def test_a_container_told_of_a_node_it_does_not_have_goes_on(machine: Machine) -> None:
    machine.nodes("0-1")
    topology = machine.look()
    assert [cell.id for cell in topology.cells] == [0]
    assert any("names node 1" in warning for warning in topology.warnings)


def test_a_container_with_less_memory_than_its_nodes_keeps_both_numbers(machine: Machine) -> None:
    machine.memory(1 << 18)
    topology = machine.look()
    assert (topology.memory_kib, topology.cells[0].memory_kib) == (1 << 18, 1 << 20)
    assert any("each cell keeps what" in warning for warning in topology.warnings)


def test_a_cpu_claimed_by_two_nodes_stays_with_the_first(two_cells: Machine) -> None:
    two_cells.node(1, cpus="1-3", memory_kib=1 << 20, distance="21 10")
    topology = two_cells.look()
    assert [cell.cpus for cell in topology.cells] == [(0, 1), (2, 3)]
    assert any("claims CPUs 1 " in warning for warning in topology.warnings)


def test_a_node_that_cannot_be_read_is_left_out_and_its_cpus_are_named(two_cells: Machine) -> None:
    two_cells.remove("sys/devices/system/node/node1/meminfo")
    topology = two_cells.look()
    assert [cell.id for cell in topology.cells] == [0]
    assert topology.cells[0].distances == ((0, 10),)
    assert any(
        "node1/meminfo" in warning and "left out" in warning for warning in topology.warnings
    )
    assert any("CPUs 2-3 are online and on none" in warning for warning in topology.warnings)


@pytest.mark.parametrize("distance", ["10", "10 20 30", "near far"])
def test_distances_that_do_not_fit_the_nodes_are_unknown(two_cells: Machine, distance: str) -> None:
    two_cells.node(0, cpus="0-1", memory_kib=1 << 20, distance=distance)
    topology = two_cells.look()
    assert topology.cells[0].distances == ()
    assert any("distances are unknown" in warning for warning in topology.warnings)


def test_a_pool_that_cannot_be_read_is_left_out(machine: Machine) -> None:
    machine.huge_pages(0, 2048, total=100, free=50)
    machine.sys("devices/system/node/node0/hugepages/hugepages-1048576kB/nr_hugepages", "many")
    topology = machine.look()
    assert [pool.size_kib for pool in topology.cells[0].huge_pages] == [2048]
    assert any("'many'" in warning for warning in topology.warnings)


@pytest.mark.parametrize("content", [None, "MemTotal: plenty\n"])
def test_a_host_without_memory_says_what_to_check(machine: Machine, content: str | None) -> None:
    machine.remove("proc/meminfo")
    if content is not None:
        machine.proc("meminfo", content)
    with pytest.raises(DiscoveryError, match=r"meminfo.*procfs_root"):
        machine.look()


@pytest.mark.parametrize("end", ["\n\0", "\0", "\0\n", " \n\0\0"])
def test_lists_that_end_in_nul_are_lists(two_cells: Machine, end: str) -> None:
    """As an arm64 kernel of 5.15 wrote them, and node/online of kernels before 2.6.36."""
    two_cells.sys("devices/system/node/online", b"0-1" + end.encode())
    for number, cpus in enumerate((b"0-1", b"2-3")):
        two_cells.sys(f"devices/system/node/node{number}/cpulist", cpus + end.encode())
    for cpu in range(4):
        first = cpu // 2 * 2
        siblings = f"{first}-{first + 1}{end}".encode()
        two_cells.sys(f"devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", siblings)
    topology = two_cells.look()
    assert [cell.cpus for cell in topology.cells] == [(0, 1), (2, 3)]
    assert topology.hyperthreading
    assert topology.warnings == ()


def test_a_cpu_that_is_switched_off_stays_in_its_cell(two_cells: Machine) -> None:
    """Of even and odd numbers, where the nearest number is on the other cell."""
    two_cells.cpus("0-3", present="0-7")
    for cell in range(2):
        here = f"devices/system/node/node{cell}"
        two_cells.sys(f"{here}/cpulist", f"{cell},{cell + 2}")
        for cpu in range(cell, 8, 2):
            two_cells.link(f"{here}/cpu{cpu}", f"devices/system/cpu/cpu{cpu}")
    cells = two_cells.look().cells
    assert [cell.cpus for cell in cells] == [(0, 2), (1, 3)]
    assert [cell.offline_cpus for cell in cells] == [(4, 6), (5, 7)]


def test_the_driver_of_gpus_names_the_cells_that_are_their_memory(two_cells: Machine) -> None:
    two_cells.nodes("0-1,254-255")
    two_cells.memory(4 << 20)
    for cell, cpus in ((0, "0-1"), (1, "2-3"), (254, ""), (255, "")):
        two_cells.node(cell, cpus=cpus, memory_kib=1 << 20)
        two_cells.sys(f"devices/system/node/node{cell}/distance", "10 21 80 80")
    two_cells.gpu("0004:04:00.0")
    for address, status in (
        ("0004:04:00.0", "Node:      254\nStatus:    online\nAddress:   40000000000"),
        ("0035:03:00.0", "Node:      -1\nStatus:    offline"),
        ("0035:04:00.0", "no status"),
    ):
        two_cells.proc(f"driver/nvidia/gpus/{address}/numa_status", status)
    topology = two_cells.look()
    assert [cell.gpu_memory_of for cell in topology.cells] == [None, None, "0004:04:00.0", None]
    assert topology.warnings == ()
