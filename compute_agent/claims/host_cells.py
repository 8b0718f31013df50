"""NUMA cells of the host as claims see them: what each has for guests, and where devices are."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from msgspec import Struct

from compute_agent.fitting.host import Core
from compute_agent.state.claim import ClaimedCell
from compute_agent.virt.driver import InstanceDevices


class HostCell(Struct, frozen=True):
    """One cell, without what is kept for the host. Memory in MiB."""

    id: int
    shared_cpus: tuple[int, ...] = ()
    """CPUs over which guests float."""
    dedicated_cpus: tuple[int, ...] = ()
    """CPUs that one guest each gets."""
    reserved_cpus: int = 0
    memory_mib: int = 0
    pages_mib: Mapping[int, int] = {}
    """Memory in huge pages, by their size in KiB."""
    cores: tuple[Core, ...] = ()
    """Cores with dedicated CPUs, with all these."""
    distances: Mapping[int, int] = {}
    package: int | None = None


_NO_CELL = HostCell(-1)


class DevicePlace(Struct, frozen=True):
    """The place of a PCI function: the cell that it is near, and its root port."""

    cell: int | None
    pcie_root: str


def cells_of(facts: Mapping[str, Any]) -> tuple[HostCell, ...]:
    """Return the cells in the facts of a driver; empty where it does not report what guests get."""
    topology = facts.get("numa_topology") or ()
    return _cells(topology if isinstance(topology, str) else json.dumps(topology))


@lru_cache(maxsize=8)
def _cells(topology: str) -> tuple[HostCell, ...]:
    cells = json.loads(topology) or ()
    # CPUs of a cell without memory are counted with another cell, and keep their cores
    core_of = {
        int(cpu): (tuple(map(int, core["cpus"])), core["l3"])
        for cell in cells
        for core in cell.get("cores") or ()
        for cpu in core["cpus"]
    }
    return tuple(
        HostCell(
            int(cell["id"]),
            tuple(guests["shared_cpus"]),
            tuple(guests["dedicated_cpus"]),
            int(guests["reserved_cpus"]),
            int(guests["memory_mib"]),
            {int(size): int(mib) for size, mib in guests["pages_mib"].items()},
            tuple(_cores(guests["dedicated_cpus"], core_of)),
            {int(other): int(n) for other, n in (cell.get("distances") or {}).items()},
            cell.get("package"),
        )
        for cell in cells
        if (guests := cell.get("guests"))
    )


def _cores(
    dedicated_cpus: Iterable[int], core_of: Mapping[int, tuple[tuple[int, ...], int | None]]
) -> Iterator[Core]:
    """Yield the cores of dedicated CPUs; one that is switched off is a core of its own."""
    cpus_of: dict[tuple[int, ...], list[int]] = {}
    for cpu in sorted(dedicated_cpus):
        siblings, _l3 = core_of.get(cpu, ((cpu,), None))
        cpus_of.setdefault(siblings, []).append(cpu)
    for siblings, cpus in cpus_of.items():
        l3 = core_of.get(cpus[0], ((), None))[1]
        yield Core(tuple(cpus), max(len(siblings), 1), -1 if l3 is None else l3)


def device_places(facts: Mapping[str, Any]) -> Mapping[str, DevicePlace]:
    """Return the places of PCI functions by address, as far as a driver reports functions."""
    devices = facts.get("pci_passthrough_devices") or ()
    return _places(devices if isinstance(devices, str) else json.dumps(devices))


@lru_cache(maxsize=8)
def _places(devices: str) -> Mapping[str, DevicePlace]:
    places = {
        str(device["address"]): DevicePlace(
            device.get("numa_node"), str(device.get("pcie_root") or device.get("parent_addr") or "")
        )
        for device in json.loads(devices) or ()
    }
    # a VF is where its PF is
    return {address: places.get(place.pcie_root, place) for address, place in places.items()}


def cells_of_guest(devices: InstanceDevices, cells: Iterable[HostCell]) -> tuple[ClaimedCell, ...]:
    """Return what a running guest is seen to have of the cells; empty where it floats over all."""
    known_cells = {cell.id: cell for cell in cells}
    pinned_cpus = frozenset(devices.pinned_cpus)
    uses = []
    for use in devices.cells:
        own_cpus = pinned_cpus.intersection(known_cells.get(use.cell, _NO_CELL).dedicated_cpus)
        vcpus = max(use.vcpus - len(own_cpus), 0)
        uses.append(ClaimedCell(use.cell, vcpus=vcpus, pinned_cpus=tuple(sorted(own_cpus))))
    memory: Iterable[tuple[int | None, int | None, int]] = [
        (part.cell, part.page_size_kib, part.memory_mib) for part in devices.memory
    ] or [(use.cell, devices.page_size_kib, use.memory_mib) for use in devices.cells]
    for number, size, memory_mib in memory:
        if number is not None and number in known_cells:
            # memory in pages that the cell has not is ordinary
            huge = size if size in known_cells[number].pages_mib else None
            uses.append(ClaimedCell(number, memory_mib=memory_mib, page_size_kib=huge))
    return tuple(uses)


def floating_memory(
    devices: InstanceDevices, cells: Iterable[HostCell]
) -> Iterator[tuple[int | None, int]]:
    """Yield size of pages (None = ordinary) and MiB of what a running guest has on any cells."""
    sizes = {size for cell in cells for size in cell.pages_mib}
    for part in devices.memory:
        if part.cell is None:
            yield part.page_size_kib if part.page_size_kib in sizes else None, part.memory_mib
