"""Machines that do not exist: a topology of any size, regular and the same every time."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from compute_agent.discovery.facts import (
    CellId,
    Cpu,
    CpuId,
    CpuModel,
    DiskStore,
    HostTopology,
    HugePages,
    MdevType,
    NicPort,
    NicVf,
    NumaCell,
    PciDevice,
    PhysicalGpu,
)
from compute_agent.discovery.pci_address import pci_address

MDEV_TYPE = "nvidia-35"
_GIB = 1024**3
_GPU_IDS = ("10de", "2230")
_NIC_IDS = ("8086", "1593")
_FLAGS = ("aes", "avx", "avx2", "fma", "pni", "sse", "sse2", "sse4_1", "sse4_2", "ssse3", "vmx")


class MachineSize(Struct, frozen=True):
    """How much of everything."""

    cells: int = 2
    cpus_per_cell: int = 16
    memory_mib_per_cell: int = 65536
    pages_2mib_per_cell: int = 0
    gpus: int = 8
    vgpus_per_gpu: int = 4
    nics: int = 2
    pfs_per_nic: int = 2
    vfs_per_pf: int = 8
    disk_gib: int = 1024


def fake_topology(hostname: str, size: MachineSize) -> HostTopology:
    """Build a machine: hyper-threaded CPUs, GPUs and NICs spread over the cells in turn."""
    cells = tuple(_cell(cell, size) for cell in range(size.cells))
    cpus = tuple(cpu for cell in cells for cpu in cell.cpus)
    gpus = tuple(_gpu(index, size) for index in range(size.gpus))
    functions = [
        PciDevice(gpu.address, *_GPU_IDS, "030200", numa_node=gpu.numa_node) for gpu in gpus
    ]
    ports: list[NicPort] = []
    for nic in range(size.nics if size.pfs_per_nic else 0):
        own = [_port(nic, function, size) for function in range(size.pfs_per_nic)]
        ports.extend(own)
        functions.extend(function for port in own for function in _port_functions(port))
    return HostTopology(
        hostname=hostname,
        cells=cells,
        cpus=tuple(_cpu(cpu, len(cpus)) for cpu in cpus),
        online_cpus=cpus,
        present_cpus=cpus,
        cpu_model=CpuModel("x86_64", "GenuineIntel", "Fake CPU", _FLAGS),
        memory_kib=sum(cell.memory_kib for cell in cells),
        pci_devices=tuple(sorted(functions, key=lambda device: device.address)),
        nics=tuple(ports),
        gpus=gpus,
        disk=DiskStore("/fake", size.disk_gib * _GIB) if size.disk_gib else None,
    )


def _cell(cell: int, size: MachineSize) -> NumaCell:
    first = cell * size.cpus_per_cell
    pages = size.pages_2mib_per_cell
    return NumaCell(
        CellId(cell),
        tuple(CpuId(cpu) for cpu in range(first, first + size.cpus_per_cell)),
        size.memory_mib_per_cell * 1024,
        (HugePages(2048, pages),) if pages else (),
        tuple((CellId(other), 10 if other == cell else 21) for other in range(size.cells)),
    )


def _cpu(cpu: CpuId, count: int) -> Cpu:
    first = cpu // 2 * 2
    return Cpu(cpu, tuple(CpuId(thread) for thread in (first, first + 1) if thread < count))


def _gpu(index: int, size: MachineSize) -> PhysicalGpu:
    return PhysicalGpu(
        pci_address(f"{0x20 + index:x}:00.0"),
        *_GPU_IDS,
        numa_node=CellId(index % size.cells),
        mdev_types=(MdevType(MDEV_TYPE, size.vgpus_per_gpu),),
        nvml=True,
        model="Fake A40",
        uuid=f"GPU-00000000-0000-4000-8000-{index:012x}",
        compute_capability=(8, 6),
    )


def _port(nic: int, function: int, size: MachineSize) -> NicPort:
    bus = 0x80 + nic
    vfs = []
    for index in range(size.vfs_per_pf):
        # VFs of all ports of a card share a bus of their own domain, numbered through
        number = function * size.vfs_per_pf + index
        address = f"{number // 256 + 1:x}:{bus:x}:{number // 8 % 32:x}.{number % 8}"
        vfs.append(NicVf(pci_address(address), index, None, in_use_by_host=False))
    return NicPort(
        # eight functions to a device; more ports than that continue on the next device of the bus
        pci_address(f"{bus:x}:{function // 8:02x}.{function % 8}"),
        *_NIC_IDS,
        numa_node=CellId(nic % size.cells),
        names=(f"enp{bus}s0f{function}",),
        mac=f"02:00:00:00:{nic:02x}:{function:02x}",
        mac_permanent=True,
        speed_mbps=25000,
        is_pf=True,
        vfs=tuple(vfs),
        serial=f"fake-{nic}",
    )


def _port_functions(port: NicPort) -> Iterator[PciDevice]:
    vfs = tuple(vf.address for vf in port.vfs)
    node = port.numa_node
    yield PciDevice(port.address, *_NIC_IDS, "020000", node, total_vfs=max(len(vfs), 1), vfs=vfs)
    for vf in vfs:
        yield PciDevice(vf, port.vendor_id, "1889", "020000", node, physfn=port.address)
