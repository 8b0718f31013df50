"""Each machine of the catalogue as hwloc reads it, beside what discovery finds.

hwloc reads the same files, by code that is not ours and has seen more machines. Cells, CPUs,
threads, memory, huge pages, PCI functions and their cells agree, or the difference stands in a
table with its reason. Everywhere, hwloc shows the CPUs nearest to a cell that has none, where
discovery shows none.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest

from compute_agent.discovery import capture
from compute_agent.discovery.facts import HostTopology, PciAddress
from tests.data import machines

LSTOPO: Final = shutil.which("lstopo")

UNREAD: Final = {
    "plain-guest": "hwloc refuses a machine whose CPUs have no topology; ours are threads of one",
}
"""Machines that hwloc does not read."""

CELLS: Final = {
    "power9-gpus": "hwloc leaves out what numa_status calls the memory of a GPU; ours are marked",
    "fake-cells": "hwloc has one cell where several have the same CPUs; ours keep their memory",
}
"""Machines with other cells."""

FUNCTIONS: Final = {
    "two-domains": "hwloc 2 leaves out domains of five digits, as behind Intel VMD",
}
"""Machines with other PCI functions."""

BRIDGE: Final = "0604"
"""PCI's class of what hwloc has as bridges, and only where something is behind them."""


@dataclass
class FoundCells:
    """What one of the two found."""

    cells: dict[int, tuple[frozenset[int], int, dict[int, int]]] = field(default_factory=dict)
    """By id: CPUs, KiB of memory, pages by their size in KiB."""
    cores: set[frozenset[int]] = field(default_factory=set)
    functions: dict[PciAddress, frozenset[int]] = field(default_factory=dict)
    """Cells that each function is near."""


def by_discovery(topology: HostTopology) -> FoundCells:
    found = FoundCells(cores={frozenset(map(int, cpu.siblings)) for cpu in topology.cpus})
    for cell in topology.cells:
        pages = {pool.size_kib: pool.total for pool in cell.huge_pages}
        found.cells[cell.id] = frozenset(map(int, cell.cpus)), cell.memory_kib, pages
    for device in topology.pci_devices:
        if not device.class_code.startswith(BRIDGE):
            every_cell = frozenset(int(cell.id) for cell in topology.cells)
            own = frozenset() if device.numa_node is None else frozenset({int(device.numa_node)})
            found.functions[device.address] = own or every_cell
    return found


def by_hwloc(machine: Path) -> FoundCells:
    assert LSTOPO is not None
    command = [LSTOPO, "--of", "xml", "--whole-io", "--input", str(machine)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    found = FoundCells()
    (whole,) = ElementTree.fromstring(run.stdout).findall("object")
    for kind, element, nodes in _walk(whole, frozenset()):
        if kind == "NUMANode":
            pages = {
                int(page.get("size", "")) // 1024: int(page.get("count", ""))
                for page in element.findall("page_type")
            }
            memory_kib = int(element.get("local_memory", "0")) // 1024
            cpus = _numbers(element.get("cpuset", ""))
            found.cells[int(element.get("os_index", ""))] = cpus, memory_kib, pages
        elif kind == "Core":
            found.cores.add(_numbers(element.get("cpuset", "")))
        elif kind == "PCIDev":
            address = PciAddress(element.get("pci_busid", ""))
            found.functions[address] = nodes
    return found


def _walk(element: Element, nodes: frozenset[int]) -> Iterator[tuple[str, Element, frozenset[int]]]:
    """Yield each object with its kind, and the cells that it is near."""
    own = element.get("nodeset")
    nodes = nodes if own is None else _numbers(own)
    yield element.get("type", ""), element, nodes
    for child in element.findall("object"):
        yield from _walk(child, nodes)


def _numbers(text: str) -> frozenset[int]:
    """Return the numbers of a mask: words of 32 bits, the highest first."""
    mask = 0
    for word in text.split(","):
        mask = mask << 32 | int(word or "0", 16)
    return frozenset(number for number in range(mask.bit_length()) if mask >> number & 1)


@dataclass(frozen=True)
class Machine:
    name: str
    ours: FoundCells
    theirs: FoundCells


@pytest.fixture(scope="module", params=[name for name in machines.NAMES if name not in UNREAD])
def machine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    if LSTOPO is None:
        pytest.skip("lstopo is missing (Debian: apt-get install hwloc)")
    name = str(request.param)
    directory = machines.make(name, tmp_path_factory.mktemp(name))
    return Machine(name, by_discovery(capture.replay(directory)), by_hwloc(directory))


def test_cells_have_the_same_cpus_memory_and_pages(machine: Machine) -> None:
    ours, theirs = machine.ours.cells, machine.theirs.cells
    assert (ours.keys() == theirs.keys()) is (machine.name not in CELLS)
    for cell in ours.keys() & theirs.keys():
        cpus, memory_kib, pages = ours[cell]
        their_cpus, their_memory_kib, their_pages = theirs[cell]
        assert cpus in (their_cpus, frozenset())
        assert memory_kib == their_memory_kib
        assert pages == {size: their_pages[size] for size in pages}


def test_cores_have_the_same_threads(machine: Machine) -> None:
    assert machine.ours.cores == machine.theirs.cores


def test_pci_functions_are_near_the_same_cells(machine: Machine) -> None:
    ours, theirs = machine.ours.functions, machine.theirs.functions
    assert (ours.keys() == theirs.keys()) is (machine.name not in FUNCTIONS)
    # what is near CPUs is near the memory that is nearest to these
    with_cpus = {cell for cell, (cpus, _memory, _pages) in machine.ours.cells.items() if cpus}
    for address in ours.keys() & theirs.keys():
        assert (address, ours[address] & with_cpus) == (address, theirs[address] & with_cpus)


@pytest.mark.parametrize("name", UNREAD)
def test_what_hwloc_does_not_read_is_read_here(name: str, tmp_path: Path) -> None:
    if LSTOPO is None:
        pytest.skip("lstopo is missing (Debian: apt-get install hwloc)")
    directory = machines.make(name, tmp_path)
    with pytest.raises(subprocess.CalledProcessError):
        by_hwloc(directory)
    found = by_discovery(capture.replay(directory))
    assert found.cells
    assert all(len(core) == 1 for core in found.cores)
