"""Differences between what libvirt and sysfs report of one host, a sentence each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from compute_agent.discovery import cpu_list
from compute_agent.discovery.facts import (
    MEMORY_TOLERANCE,
    HostTopology,
    MemoryEncryption,
    NumaCell,
    PciAddress,
)
from compute_agent.discovery.pci_address import order
from compute_agent.discovery.sysfs import memory
from compute_agent.programs.printable import first_of

NAMED: Final = 8
"""So many devices are named in one sentence."""

_AMD_KINDS: Final = (
    ("amd_sev", "SEV", memory.AMD_SEV),
    ("amd_sev_es", "SEV-ES", memory.AMD_SEV_ES),
    ("amd_sev_snp", "SEV-SNP", memory.AMD_SEV_SNP),
)


def differences(libvirt: HostTopology, sysfs: HostTopology) -> Iterator[str]:
    """Yield a sentence for each fact of which they have different values."""
    difference = abs(libvirt.memory_kib - sysfs.memory_kib)
    if libvirt.memory_kib and difference * MEMORY_TOLERANCE > sysfs.memory_kib:
        yield (
            f"libvirt reports {libvirt.memory_kib} KiB of memory of the host, /proc/meminfo "
            f"{sysfs.memory_kib} KiB; the smaller is used"
        )
    if libvirt.online_cpus and libvirt.online_cpus != sysfs.online_cpus:
        yield (
            f"libvirt reports CPUs {cpu_list.write(libvirt.online_cpus)} online, sysfs "
            f"{cpu_list.write(sysfs.online_cpus)}; libvirt's are used"
        )
    if libvirt.cells:
        yield from _cell_differences(libvirt.cells, sysfs.cells)
    if libvirt.pci_devices:
        yield from _device_differences(libvirt, sysfs)


def _cell_differences(libvirt: tuple[NumaCell, ...], sysfs: tuple[NumaCell, ...]) -> Iterator[str]:
    sysfs_cells, libvirt_cells = ({cell.id: cell for cell in cells} for cells in (sysfs, libvirt))
    if sysfs_cells.keys() != libvirt_cells.keys():
        yield (
            f"libvirt reports NUMA cells {cpu_list.write(libvirt_cells)}, sysfs "
            f"{cpu_list.write(sysfs_cells)}; libvirt's are used"
        )
    for cell_id in sorted(sysfs_cells.keys() & libvirt_cells.keys()):
        cell, other = libvirt_cells[cell_id], sysfs_cells[cell_id]
        if cell.memory_kib != other.memory_kib:
            yield (
                f"libvirt reports {cell.memory_kib} KiB of memory of NUMA cell {cell_id}, sysfs "
                f"{other.memory_kib} KiB; libvirt's is used"
            )
        if cell.cpus != other.cpus:
            yield (
                f"libvirt reports CPUs {cpu_list.write(cell.cpus) or 'none'} of NUMA cell "
                f"{cell_id}, sysfs {cpu_list.write(other.cpus) or 'none'}; libvirt's are used"
            )


def _device_differences(libvirt: HostTopology, sysfs: HostTopology) -> Iterator[str]:
    sysfs_devices, libvirt_devices = (
        {device.address: device for device in host.pci_devices} for host in (sysfs, libvirt)
    )
    if addresses := libvirt_devices.keys() - sysfs_devices.keys():
        names = _list_of(addresses)
        yield f"libvirt lists PCI devices {names}, which sysfs does not; they are kept"
    if addresses := sysfs_devices.keys() - libvirt_devices.keys():
        names = _list_of(addresses)
        yield f"sysfs lists PCI devices {names}, which libvirt does not; they are kept"
    for address in sorted(sysfs_devices.keys() & libvirt_devices.keys(), key=order):
        node, other = libvirt_devices[address].numa_node, sysfs_devices[address].numa_node
        if None not in (node, other) and node != other:
            yield (
                f"libvirt reports NUMA node {node} of PCI device {address}, sysfs {other}; "
                "libvirt's is used"
            )
    mdevs, other_mdevs = (_mdev_uuids(host) for host in (libvirt, sysfs))
    for uuid in sorted(mdevs ^ other_mdevs):
        seeing, blind = ("libvirt", "sysfs") if uuid in mdevs else ("sysfs", "libvirt")
        yield f"{seeing} lists mediated device {uuid}, which {blind} does not; it is kept"


def _mdev_uuids(host: HostTopology) -> frozenset[str]:
    mdevs = [mdev for gpu in host.gpus for mdev in gpu.mdevs]
    mdevs += [mdev for gpu in host.gpus for vf in gpu.vfs for mdev in vf.mdevs]
    return frozenset(mdev.uuid for mdev in mdevs if mdev.uuid is not None)


def _list_of(addresses: Iterable[PciAddress]) -> str:
    names = sorted(addresses, key=order)
    return first_of(names, NAMED)


def encryption_differences(libvirt: MemoryEncryption, kernel: MemoryEncryption) -> Iterator[str]:
    """Yield a sentence for each kind of encrypted guests that only one of them has."""
    for field, kind, path in _AMD_KINDS:
        by_libvirt, by_kernel = bool(getattr(libvirt, field)), bool(getattr(kernel, field))
        if by_kernel and not by_libvirt:
            yield (
                f"KVM has {kind} switched on ({path}) and libvirt can start no such guest; none is "
                "reported. Check /dev/sev, the version of QEMU, and the number of keys that the "
                "firmware leaves to it"
            )
        elif by_libvirt and not by_kernel:
            yield (
                f"libvirt reports guests with {kind} and KVM has it switched off ({path}); none "
                "is reported"
            )
