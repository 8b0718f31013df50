"""Holdings of a guest on its host, in the terms of the contract with drivers.

A guest that is shut off holds what a running one does, since nobody else may get it: its
allocations remain until it is deleted, and it starts with the same CPUs, cells and devices. It
floats nowhere, though: the CPUs that it may run on are chosen when it starts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from compute_agent.discovery.libvirt.facts import Guest
from compute_agent.virt.cpu_sets import CpuSets
from compute_agent.virt.driver import CellUse, InstanceDevices, MdevUse, MemoryUse

NO_SETS: Final = CpuSets()
_KIB_PER_MIB: Final = 1024
_DEVICES: Final = "/dev/"


def holdings(
    guest: Guest,
    sets: CpuSets = NO_SETS,
    online: Collection[int] = (),
    namespaces: Mapping[str, str] | None = None,
    cells: Iterable[Collection[int]] = (),
) -> InstanceDevices:
    """Return what the guest holds exclusively, and where it floats.

    A vCPU has a CPU of its own if it is pinned to that one alone and no other vCPU of the guest is:
    so a guest that Nova pins is described, the dedicated part of one with mixed CPUs, and one that
    a script pinned. A range of CPUs, one CPU for all vCPUs, or the only CPU of a cell in the
    shared set, is a place to float on.

    :param sets: a dedicated CPU on which a guest with CPUs of its own runs its emulator threads is
        its own as well, if none of its vCPUs has it.
    :param online: CPUs for a guest that may run anywhere; empty = unknown.
    :param namespaces: of persistent memory by the path of their device. Memory in a file is the
        disk's.
    :param cells: the CPUs of each NUMA cell of the host, as far as they are known.
    """
    alone = Counter(cpu for _vcpu, cpu in guest.vcpu_pins)
    shared_by_cell = [(sets.shared_cpus or frozenset()).intersection(cpus) for cpus in cells]
    only_shared = {
        cpu for shared_cpus in shared_by_cell if len(shared_cpus) == 1 for cpu in shared_cpus
    }
    own = {vcpu: cpu for vcpu, cpu in guest.vcpu_pins if alone[cpu] == 1 and cpu not in only_shared}
    pinned_cpus: set[int] = set(own.values())
    if pinned_cpus:
        pinned_cpus.update((sets.dedicated_cpus or frozenset()).intersection(guest.emulator_cpus))
    return InstanceDevices(
        pinned_cpus=tuple(sorted(pinned_cpus)),
        floating_cpus=_floating_cpus(guest, own, online),
        cells=tuple(
            CellUse(cell, vcpus, memory_kib // _KIB_PER_MIB)
            for cell, vcpus, memory_kib in guest.numa_cells
        ),
        page_size_kib=guest.page_size_kib,
        memory=tuple(
            MemoryUse(part.cell, part.page_size_kib, part.memory_kib // _KIB_PER_MIB)
            for part in guest.memory
        ),
        pci_addresses=guest.pci_addresses,
        mdevs=tuple(
            MdevUse(mdev.uuid, mdev.parent, mdev.type_id)
            for mdev in guest.mdevs
            if mdev.parent is not None
        ),
        pmem=tuple(
            sorted(
                (namespaces or {}).get(path, path)
                for path in guest.pmem_paths
                if path.startswith(_DEVICES)
            )
        ),
    )


def _floating_cpus(guest: Guest, own: Collection[int], online: Collection[int]) -> tuple[int, ...]:
    if not guest.is_running:
        return ()
    cpus: set[int] = {cpu for vcpu, cpu in guest.vcpu_pins if vcpu not in own}
    cpus.update(guest.wide_cpus)
    if len(guest.vcpu_pins) + guest.widely_pinned_vcpus < guest.vcpus:
        cpus.update(guest.cpuset or online)
    return tuple(sorted(cpus))
