"""Readings of libvirt as values, for tests."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from compute_agent.discovery.facts import CellId, Cpu, CpuId, MdevType, NumaCell, PciDevice
from compute_agent.discovery.libvirt.facts import (
    HostCapabilities,
    HypervisorReading,
    MdevNodeDevice,
    NetNodeDevice,
    NodeDevices,
    PciNodeDevice,
)
from compute_agent.discovery.libvirt.node_devices import name_of
from compute_agent.discovery.pci_address import pci_address

GIB = 1 << 20
"""In KiB."""
NO_DEVICES = NodeDevices()


def cell(number: int, *cpus: int, memory_kib: int = GIB) -> NumaCell:
    return NumaCell(CellId(number), tuple(map(CpuId, cpus)), memory_kib)


def reading(*cells: NumaCell, devices: NodeDevices = NO_DEVICES) -> HypervisorReading:
    """A host with these cells, all of their CPUs online."""
    cpus = tuple(sorted(cpu for cell in cells for cpu in cell.cpus)) or (CpuId(0), CpuId(1))
    return HypervisorReading(
        hostname="hv1",
        hypervisor="QEMU",
        hypervisor_version=8_002_022,
        libvirt_version=9_000_000,
        memory_kib=sum(cell.memory_kib for cell in cells) or 2 * GIB,
        online_cpus=cpus,
        present_cpus=cpus,
        capabilities=HostCapabilities(
            arch="x86_64",
            vendor="Intel",
            model="Skylake-Server-IBRS",
            cpu_xml=None,
            cells=cells,
            cpus=tuple(Cpu(cpu, (cpu,)) for cpu in cpus) if cells else (),
            emulators=(),
        ),
        devices=devices,
    )


def function(address: str, *, class_code: str = "020000", node: int | None = None) -> PciNodeDevice:
    """An Intel function; with another class, an NVIDIA one."""
    own = pci_address(address)
    device = PciDevice(
        address=own,
        vendor_id="8086" if class_code.startswith("02") else "10de",
        product_id="1592",
        class_code=class_code,
        numa_node=None if node is None else CellId(node),
    )
    return PciNodeDevice(name_of(own), device)


def pf(address: str, *vfs: str, class_code: str = "020000") -> tuple[PciNodeDevice, ...]:
    """A PF that can make 8 VFs, and those it has."""
    whole = function(address, class_code=class_code)
    own = [function(vf, class_code=class_code) for vf in vfs]

    def with_facts(device: PciNodeDevice, **facts: Any) -> PciNodeDevice:
        return replace(device, function=replace(device.function, **facts))

    return (
        with_facts(whole, total_vfs=8, vfs=tuple(vf.function.address for vf in own)),
        *(with_facts(vf, physfn=whole.function.address) for vf in own),
    )


def gpu(address: str, available: int, *, node: int | None = None) -> PciNodeDevice:
    """A GPU that makes so many more of nvidia-35."""
    types = (MdevType("nvidia-35", available),)
    return replace(function(address, class_code="030200", node=node), mdev_types=types)


def mdev(uuid: str, parent: str, *, active: bool = True) -> MdevNodeDevice:
    """An mdev of type nvidia-35."""
    address = pci_address(parent)
    name = f"mdev_{uuid.replace('-', '_')}"
    return MdevNodeDevice(
        name, uuid, "nvidia-35", name_of(address), address, active, persistent=not active
    )


def interface(name: str, parent: str, *features: str) -> NetNodeDevice:
    return NetNodeDevice(name, name_of(pci_address(parent)), features=features)
