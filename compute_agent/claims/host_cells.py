"""NUMA cells of the host as claims see them: what each has for guests, and what of it is free."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from compute_agent.state.claim import ClaimedCell
from compute_agent.virt.driver import InstanceDevices


@dataclass(frozen=True, slots=True)
class HostCell:
    """One cell, without what is kept for the host. Memory in MiB."""

    id: int
    shared_cpus: tuple[int, ...] = ()
    """CPUs over which guests float."""
    dedicated_cpus: tuple[int, ...] = ()
    """CPUs that one guest each gets."""
    reserved_cpus: int = 0
    memory_mib: int = 0
    pages_mib: Mapping[int, int] = field(default_factory=dict)
    """Memory in huge pages, by their size in KiB."""


@dataclass(frozen=True, slots=True)
class FreeCell:
    """What of a cell is free now, overcommit included where there is any."""

    id: int
    shared_cpus: tuple[int, ...]
    vcpus: int
    pinnable: tuple[int, ...]
    """Dedicated CPUs that nobody has, by number."""
    memory_mib: int
    pages_mib: Mapping[int, int] = field(default_factory=dict)


def cells_of(facts: Mapping[str, Any]) -> tuple[HostCell, ...]:
    """Return the cells in the facts of a driver; empty where it does not report what guests get."""
    topology = facts.get("numa_topology")
    cells = json.loads(topology) if isinstance(topology, str) else topology
    return tuple(
        HostCell(
            int(cell["id"]),
            tuple(guests["shared_cpus"]),
            tuple(guests["dedicated_cpus"]),
            int(guests["reserved_cpus"]),
            int(guests["memory_mib"]),
            {int(size): int(mib) for size, mib in guests["pages_mib"].items()},
        )
        for cell in cells or ()
        if (guests := cell.get("guests"))
    )


def free_cells(
    cells: Iterable[HostCell],
    used_cells: Iterable[ClaimedCell],
    taken_cpus: Collection[int],
    ratios: Mapping[str, float],
) -> tuple[FreeCell, ...]:
    """Return what is free of each cell.

    :param used_cells: what guests have of them.
    :param taken_cpus: dedicated CPUs that are in use.
    :param ratios: overcommit by class, ``VCPU`` and ``MEMORY_MB``; huge pages know none.
    """
    vcpus: Counter[int] = Counter()
    memory: Counter[tuple[int, int | None]] = Counter()
    for use in used_cells:
        vcpus[use.cell] += use.vcpus
        memory[use.cell, use.page_size_kib] += use.memory_mib
    return tuple(
        FreeCell(
            cell.id,
            cell.shared_cpus,
            int((len(cell.shared_cpus) - cell.reserved_cpus) * ratios.get("VCPU", 1.0))
            - vcpus[cell.id],
            tuple(sorted(frozenset(cell.dedicated_cpus).difference(taken_cpus))),
            int(cell.memory_mib * ratios.get("MEMORY_MB", 1.0)) - memory[cell.id, None],
            {size: mib - memory[cell.id, size] for size, mib in cell.pages_mib.items()},
        )
        for cell in cells
    )


def cells_of_guest(devices: InstanceDevices, cells: Iterable[HostCell]) -> tuple[ClaimedCell, ...]:
    """Return what a running guest is seen to have of the cells; empty where it floats over all."""
    pinned_cpus = frozenset(devices.pinned_cpus)
    own = {cell.id: pinned_cpus.intersection(cell.dedicated_cpus) for cell in cells}
    return tuple(
        ClaimedCell(
            use.cell,
            vcpus=max(use.vcpus - len(own.get(use.cell, ())), 0),
            pinned_cpus=tuple(sorted(own.get(use.cell, ()))),
            memory_mib=use.memory_mib,
            page_size_kib=devices.page_size_kib,
        )
        for use in devices.cells
    )
