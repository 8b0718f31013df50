"""One topology of a host from two sources: libvirt, and sysfs with NVML.

libvirt goes first in what it reports: guests get CPUs, memory and devices through it. sysfs adds
what it does not report (who uses a VF, MAC addresses that are permanent, vGPUs without mediated
devices), by the address of the device. Nothing that only one of them has is left out, other than
cells that libvirt does not know; each difference is a sentence in the warnings, with both values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from msgspec.structs import replace

from compute_agent.discovery.facts import (
    CellId,
    Cpu,
    CpuModel,
    GpuVf,
    HostTopology,
    Mdev,
    MdevType,
    MemoryEncryption,
    NicPort,
    NicVf,
    NumaCell,
    PciAddress,
    PciDevice,
    PhysicalGpu,
)
from compute_agent.discovery.libvirt.described import describe
from compute_agent.discovery.libvirt.differences import differences, encryption_differences
from compute_agent.discovery.libvirt.facts import HypervisorReading
from compute_agent.discovery.pci_address import order

SHARED_CPU: Final = frozenset({"LXC"})
"""Hypervisors whose guests get the CPU of the host as it is."""

_Device = TypeVar("_Device", PciDevice, NicPort, PhysicalGpu)
_Placed = TypeVar("_Placed", PciDevice, NicPort, PhysicalGpu, GpuVf)
_Fact = TypeVar("_Fact")


def join(reading: HypervisorReading, topology: HostTopology | None) -> HostTopology:
    """Return the host with the facts of both sources.

    :param topology: the same machine by sysfs; None: the hypervisor is of another machine.
    """
    described_topology = describe(reading)
    if topology is None:
        host = described_topology
    else:
        host = _join(described_topology, topology)
        if reading.hypervisor in SHARED_CPU:
            host = replace(host, cpu_model=topology.cpu_model)
        if reading.domain_capabilities:
            sentences = encryption_differences(
                described_topology.memory_encryption, topology.memory_encryption
            )
            host = replace(host, warnings=_once((*host.warnings, *sentences)))
    if not host.cells:
        distance = ((CellId(0), 10),)
        cell = NumaCell(CellId(0), host.online_cpus, host.memory_kib, distances=distance)
        host = replace(host, cells=(cell,))
    return _on_known_cells(host)


def _cpus(libvirt: tuple[Cpu, ...], sysfs: tuple[Cpu, ...]) -> tuple[Cpu, ...]:
    """Return libvirt's CPUs with their caches and packages, which sysfs names for each CPU."""
    places = {cpu.id: (cpu.package, cpu.l3) for cpu in sysfs}
    return (
        tuple(
            replace(cpu, package=package, l3=l3)
            for cpu in libvirt
            for package, l3 in [places.get(cpu.id, (None, None))]
        )
        or sysfs
    )


def _join(libvirt: HostTopology, sysfs: HostTopology) -> HostTopology:
    # a function that sysfs shows and takes neither for a port nor for a GPU is not one: lost GPUs
    sysfs_addresses = frozenset(device.address for device in sysfs.pci_devices)
    return replace(
        sysfs,
        hostname=libvirt.hostname,
        cells=_cells(libvirt, sysfs),
        cpus=_cpus(libvirt.cpus, sysfs.cpus),
        online_cpus=libvirt.online_cpus or sysfs.online_cpus,
        present_cpus=sysfs.present_cpus,
        cpu_model=_cpu_model(libvirt.cpu_model, sysfs.cpu_model),
        # a container shows all memory of the machine to libvirt, which adds that of the NUMA nodes
        # up, and gets 0 on a kernel without NUMA
        memory_kib=min(libvirt.memory_kib or sysfs.memory_kib, sysfs.memory_kib),
        pci_devices=_join_devices(libvirt.pci_devices, sysfs.pci_devices, _function),
        nics=_join_devices(libvirt.nics, sysfs.nics, _port, sysfs_addresses),
        infiniband_ports=_join_devices(
            libvirt.infiniband_ports, sysfs.infiniband_ports, _port, sysfs_addresses
        ),
        gpus=_each_once(_join_devices(libvirt.gpus, sysfs.gpus, _gpu, sysfs_addresses)),
        memory_encryption=join_encryption(libvirt.memory_encryption, sysfs.memory_encryption),
        warnings=_once((*sysfs.warnings, *libvirt.warnings, *differences(libvirt, sysfs))),
    )


def join_encryption(libvirt: MemoryEncryption, kernel: MemoryEncryption) -> MemoryEncryption:
    """Return the encryption that both let guests have: numbers of libvirt, of TDX the kernel's."""
    capacity = {**dict(kernel.capacity), **dict(libvirt.capacity)}
    return MemoryEncryption(
        amd_sev=libvirt.amd_sev and kernel.amd_sev,
        amd_sev_es=libvirt.amd_sev_es and kernel.amd_sev_es,
        amd_sev_snp=libvirt.amd_sev_snp and kernel.amd_sev_snp,
        intel_tdx=libvirt.intel_tdx,
        capacity=tuple(sorted(capacity.items())),
    )


def _cpu_model(libvirt: CpuModel, sysfs: CpuModel) -> CpuModel:
    """Return the host's CPU with the features that guests get of it; unknown where they are."""
    has_features = libvirt.guest_features is not None
    return replace(
        sysfs,
        flags=sysfs.flags if has_features else (),
        guest_features=libvirt.guest_features,
        libvirt_model=libvirt.libvirt_model,
    )


def _cells(libvirt: HostTopology, sysfs: HostTopology) -> tuple[NumaCell, ...]:
    if not libvirt.cells:
        return sysfs.cells
    cells_by_id = {cell.id: cell for cell in sysfs.cells}
    return tuple(
        _cell(cell, cells_by_id[cell.id]) if cell.id in cells_by_id else cell
        for cell in libvirt.cells
    )


def _cell(libvirt: NumaCell, sysfs: NumaCell) -> NumaCell:
    offline_cpus = {*libvirt.offline_cpus, *sysfs.offline_cpus}.difference(libvirt.cpus)
    return replace(
        libvirt,
        huge_pages=libvirt.huge_pages or sysfs.huge_pages,
        distances=libvirt.distances or sysfs.distances,
        gpu_memory_of=sysfs.gpu_memory_of,
        offline_cpus=tuple(sorted(offline_cpus)),
    )


# -- devices ----------------------------------------------------------------------------------


def _join_devices(
    libvirt: tuple[_Device, ...],
    sysfs: tuple[_Device, ...],
    both: Callable[[_Device, _Device], _Device],
    shown_addresses: frozenset[PciAddress] = frozenset(),
) -> tuple[_Device, ...]:
    """Return the devices of both sources, each once, by address.

    :param shown_addresses: functions of which libvirt's word alone does not make such a device.
    """
    devices = {device.address: device for device in sysfs}
    for device in libvirt:
        known_device = devices.get(device.address)
        if known_device is not None:
            devices[device.address] = both(device, known_device)
        elif device.address not in shown_addresses:
            devices[device.address] = device
    return tuple(devices[address] for address in sorted(devices, key=order))


def _each_once(gpus: tuple[PhysicalGpu, ...]) -> tuple[PhysicalGpu, ...]:
    """Put VFs that stand for themselves in one source to the PF that the other source knows."""
    gpus_by_address = {gpu.address: gpu for gpu in gpus}
    members = frozenset(vf.address for gpu in gpus for vf in gpu.vfs)
    return tuple(
        replace(
            gpu, vfs=tuple(_with_own_vgpus(vf, gpus_by_address.get(vf.address)) for vf in gpu.vfs)
        )
        for gpu in gpus
        if gpu.address not in members
    )


def _with_own_vgpus(vf: GpuVf, listed_gpu: PhysicalGpu | None) -> GpuVf:
    if listed_gpu is None:
        return vf
    return replace(
        vf,
        mdev_types=_types(vf.mdev_types, listed_gpu.mdev_types),
        mdevs=_mdevs(vf.mdevs, listed_gpu.mdevs),
    )


def _function(libvirt: PciDevice, sysfs: PciDevice) -> PciDevice:
    return replace(
        sysfs,
        numa_node=_either(libvirt.numa_node, sysfs.numa_node),
        bridges=sysfs.bridges or libvirt.bridges,
        physfn=_either(libvirt.physfn, sysfs.physfn),
        total_vfs=libvirt.total_vfs or sysfs.total_vfs,
        vfs=_once((*sysfs.vfs, *libvirt.vfs)),
        vdpa=_either(libvirt.vdpa, sysfs.vdpa),
    )


def _port(libvirt: NicPort, sysfs: NicPort) -> NicPort:
    return replace(
        sysfs,
        numa_node=_either(libvirt.numa_node, sysfs.numa_node),
        names=sysfs.names or libvirt.names,
        mac=_either(sysfs.mac, libvirt.mac),
        speed_mbps=_either(sysfs.speed_mbps, libvirt.speed_mbps),
        is_pf=sysfs.is_pf or libvirt.is_pf,
        vfs=_vfs(sysfs.vfs, libvirt.vfs),
        serial=_either(libvirt.serial, sysfs.serial),
        features=tuple(sorted({*sysfs.features, *libvirt.features})),
    )


def _gpu(libvirt: PhysicalGpu, sysfs: PhysicalGpu) -> PhysicalGpu:
    described_vfs = {vf.address: vf for vf in libvirt.vfs}
    own = tuple(
        _gpu_vf(described_vfs[vf.address], vf) if vf.address in described_vfs else vf
        for vf in sysfs.vfs
    )
    return replace(
        sysfs,
        numa_node=_either(libvirt.numa_node, sysfs.numa_node),
        vfs=_vfs(own, libvirt.vfs),
        mdev_types=_types(libvirt.mdev_types, sysfs.mdev_types),
        mdevs=_mdevs(libvirt.mdevs, sysfs.mdevs),
    )


def _gpu_vf(libvirt: GpuVf, sysfs: GpuVf) -> GpuVf:
    return replace(
        sysfs,
        numa_node=_either(libvirt.numa_node, sysfs.numa_node),
        mdev_types=_types(libvirt.mdev_types, sysfs.mdev_types),
        mdevs=_mdevs(libvirt.mdevs, sysfs.mdevs),
    )


_Vf = TypeVar("_Vf", NicVf, GpuVf)


def _vfs(sysfs: tuple[_Vf, ...], libvirt: tuple[_Vf, ...]) -> tuple[_Vf, ...]:
    """Return the VFs of sysfs, then those that only libvirt lists, which get the next numbers."""
    vfs = list(sysfs)
    known_addresses = {vf.address for vf in sysfs}
    number = max((vf.index for vf in sysfs), default=-1)
    for vf in libvirt:
        if vf.address not in known_addresses:
            number += 1
            vfs.append(replace(vf, index=number))
    return tuple(vfs)


def _types(libvirt: tuple[MdevType, ...], sysfs: tuple[MdevType, ...]) -> tuple[MdevType, ...]:
    """Return the types of both, with what libvirt reports to be left of them."""
    types = {kind.id: kind for kind in (*sysfs, *libvirt)}
    return tuple(types[kind] for kind in sorted(types))


def _mdevs(libvirt: tuple[Mdev, ...], sysfs: tuple[Mdev, ...]) -> tuple[Mdev, ...]:
    """Return the devices of both; a vGPU without a uuid is one that libvirt does not list."""
    known_uuids = {mdev.uuid for mdev in libvirt}
    return (
        *libvirt,
        *(mdev for mdev in sysfs if mdev.uuid is None or mdev.uuid not in known_uuids),
    )


def _on_known_cells(host: HostTopology) -> HostTopology:
    """Take the cell from each device that names one which the host does not have."""
    ids = frozenset(cell.id for cell in host.cells)
    named_nodes = {device.address: device.numa_node for device in host.pci_devices}
    named_nodes |= {gpu.address: gpu.numa_node for gpu in host.gpus if gpu.numa_node is not None}
    unknown_nodes = {
        address: node
        for address, node in named_nodes.items()
        if node is not None and node not in ids
    }
    if not unknown_nodes:
        return host

    def without_unknown_cell(device: _Placed) -> _Placed:
        return device if device.numa_node in ids else replace(device, numa_node=None)

    sentences = (
        f"PCI device {address} names NUMA node {node}, which this host does not have; the device's"
        " cell is unknown"
        for address, node in unknown_nodes.items()
    )
    return replace(
        host,
        pci_devices=tuple(without_unknown_cell(device) for device in host.pci_devices),
        nics=tuple(without_unknown_cell(port) for port in host.nics),
        infiniband_ports=tuple(without_unknown_cell(port) for port in host.infiniband_ports),
        gpus=tuple(
            replace(
                without_unknown_cell(gpu), vfs=tuple(without_unknown_cell(vf) for vf in gpu.vfs)
            )
            for gpu in host.gpus
        ),
        warnings=_once((*host.warnings, *sentences)),
    )


def _either(first: _Fact | None, second: _Fact | None) -> _Fact | None:
    return second if first is None else first


def _once(items: tuple[_Fact, ...]) -> tuple[_Fact, ...]:
    return tuple(dict.fromkeys(items))
