"""One topology of a host from two sources: libvirt, and sysfs with NVML.

libvirt goes first in what it reports: guests get CPUs, memory and devices through it. sysfs adds
what it does not report (who uses a VF, MAC addresses that are permanent, vGPUs without mediated
devices), by the address of the device. Nothing that only one of them has is left out, other than
cells that libvirt does not know; each difference is a sentence in the warnings, with both values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final, TypeVar

from compute_agent.discovery.facts import (
    CellId,
    Cpu,
    CpuId,
    CpuModel,
    GpuVf,
    HostTopology,
    Mdev,
    MdevType,
    NicPort,
    NicVf,
    NumaCell,
    PciAddress,
    PciDevice,
    PhysicalGpu,
)
from compute_agent.discovery.libvirt import memory_encryption
from compute_agent.discovery.libvirt.described import describe
from compute_agent.discovery.libvirt.facts import HypervisorReading
from compute_agent.discovery.sysfs import cpu_list
from compute_agent.discovery.sysfs.cells import TOLERANCE
from compute_agent.discovery.sysfs.nics import cards
from compute_agent.discovery.sysfs.pci import order
from compute_agent.programs.printable import first_of

NAMED: Final = 8
"""So many devices are named in one sentence."""

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
    topology_of_both = (
        described_topology if topology is None else _join(described_topology, topology)
    )
    if topology is not None and reading.hypervisor in SHARED_CPU:
        topology_of_both = replace(topology_of_both, cpu_model=topology.cpu_model)
    if topology is not None and reading.domain_capabilities:
        sentences = memory_encryption.differences(
            described_topology.memory_encryption, topology.memory_encryption
        )
        topology_of_both = replace(
            topology_of_both, warnings=_once((*topology_of_both.warnings, *sentences))
        )
    if not topology_of_both.cells:
        distance = ((CellId(0), 10),)
        cell = NumaCell(
            CellId(0), topology_of_both.online_cpus, topology_of_both.memory_kib, distances=distance
        )
        topology_of_both = replace(topology_of_both, cells=(cell,))
    return _on_known_cells(topology_of_both)


def _cpus(libvirt: tuple[Cpu, ...], sysfs: tuple[Cpu, ...]) -> tuple[Cpu, ...]:
    """Return libvirt's CPUs with their caches and packages, which sysfs names for each CPU."""
    places = {cpu.id: (cpu.package, cpu.l3) for cpu in sysfs}
    return (
        tuple(
            cpu._replace(package=package, l3=l3)
            for cpu in libvirt
            for package, l3 in [places.get(cpu.id, (None, None))]
        )
        or sysfs
    )


def _join(libvirt: HostTopology, sysfs: HostTopology) -> HostTopology:
    functions = _join_devices(libvirt.pci_devices, sysfs.pci_devices, _function)
    # a function that sysfs shows and takes neither for a port nor for a GPU is not one: lost GPUs
    sysfs_addresses = frozenset(device.address for device in sysfs.pci_devices)
    ports = _join_devices(libvirt.nics, sysfs.nics, _port, sysfs_addresses)
    return replace(
        sysfs,
        hostname=libvirt.hostname,
        cells=_cells(libvirt, sysfs),
        cpus=_cpus(libvirt.cpus, sysfs.cpus),
        online_cpus=libvirt.online_cpus or sysfs.online_cpus,
        present_cpus=sysfs.present_cpus,
        cpu_model=_cpu_model(libvirt.cpu_model, sysfs.cpu_model),
        memory_kib=_memory_kib(libvirt, sysfs),
        pci_devices=functions,
        nics=ports,
        infiniband_ports=_join_devices(
            libvirt.infiniband_ports, sysfs.infiniband_ports, _port, sysfs_addresses
        ),
        nic_cards=cards(ports, functions),
        gpus=_each_once(_join_devices(libvirt.gpus, sysfs.gpus, _gpu, sysfs_addresses)),
        memory_encryption=memory_encryption.join(
            libvirt.memory_encryption, sysfs.memory_encryption
        ),
        warnings=_once((*sysfs.warnings, *libvirt.warnings, *_differences(libvirt, sysfs))),
    )


def _cpu_model(libvirt: CpuModel, sysfs: CpuModel) -> CpuModel:
    """Return the host's CPU with the features that guests get of it; unknown where they are."""
    has_features = libvirt.guest_features is not None
    return sysfs._replace(
        flags=sysfs.flags if has_features else (),
        guest_features=libvirt.guest_features,
        libvirt_model=libvirt.libvirt_model,
    )


def _memory_kib(libvirt: HostTopology, sysfs: HostTopology) -> int:
    """Return the smaller memory: a container shows all of the machine's to libvirt.

    libvirt adds the memory of the NUMA nodes up, and gets 0 on a kernel without NUMA.
    """
    return min(libvirt.memory_kib or sysfs.memory_kib, sysfs.memory_kib)


def _cells(libvirt: HostTopology, sysfs: HostTopology) -> tuple[NumaCell, ...]:
    if not libvirt.cells:
        return sysfs.cells
    cells_by_id = {cell.id: cell for cell in sysfs.cells}
    return tuple(
        replace(
            cell,
            huge_pages=cell.huge_pages or cells_by_id[cell.id].huge_pages,
            distances=cell.distances or cells_by_id[cell.id].distances,
            gpu_memory_of=cells_by_id[cell.id].gpu_memory_of,
            offline_cpus=_offline(cell, cells_by_id[cell.id]),
        )
        if cell.id in cells_by_id
        else cell
        for cell in libvirt.cells
    )


def _offline(cell: NumaCell, sysfs_cell: NumaCell) -> tuple[CpuId, ...]:
    return tuple(sorted({*cell.offline_cpus, *sysfs_cell.offline_cpus}.difference(cell.cpus)))


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
        name=_either(sysfs.name, libvirt.name),
        names=sysfs.names or libvirt.names,
        mac=_either(sysfs.mac, libvirt.mac),
        speed_mbps=_either(sysfs.speed_mbps, libvirt.speed_mbps),
        switchdev=sysfs.switchdev or libvirt.switchdev,
        rdma=sysfs.rdma or libvirt.rdma,
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

    ports = tuple(without_unknown_cell(port) for port in host.nics)
    sentences = (
        f"PCI device {address} names NUMA node {node}, which this host does not have; the device's"
        " cell is unknown"
        for address, node in unknown_nodes.items()
    )
    return replace(
        host,
        pci_devices=tuple(without_unknown_cell(device) for device in host.pci_devices),
        nics=ports,
        infiniband_ports=tuple(without_unknown_cell(port) for port in host.infiniband_ports),
        nic_cards=cards(ports, host.pci_devices),
        gpus=tuple(
            replace(
                without_unknown_cell(gpu), vfs=tuple(without_unknown_cell(vf) for vf in gpu.vfs)
            )
            for gpu in host.gpus
        ),
        warnings=_once((*host.warnings, *sentences)),
    )


# -- differences ------------------------------------------------------------------------------


def _differences(libvirt: HostTopology, sysfs: HostTopology) -> Iterator[str]:
    difference = abs(libvirt.memory_kib - sysfs.memory_kib)
    if libvirt.memory_kib and difference * TOLERANCE > sysfs.memory_kib:
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


def _either(first: _Fact | None, second: _Fact | None) -> _Fact | None:
    return second if first is None else first


def _once(items: tuple[_Fact, ...]) -> tuple[_Fact, ...]:
    return tuple(dict.fromkeys(items))
