"""A host as libvirt alone describes it: node devices into NICs, GPUs and cells."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from compute_agent.discovery.facts import (
    CpuModel,
    GpuVf,
    HostTopology,
    Mdev,
    MemoryEncryption,
    NicPort,
    NicVf,
    PciAddress,
    PciDevice,
    PhysicalGpu,
)
from compute_agent.discovery.libvirt.facts import (
    HypervisorReading,
    NetNodeDevice,
    NodeDevices,
    PciNodeDevice,
)
from compute_agent.discovery.pci_address import order
from compute_agent.discovery.sysfs.gpus import is_gpu
from compute_agent.discovery.sysfs.pci import ETHERNET, INFINIBAND, NETWORK, network_kind

MAC_LENGTH: Final = len("00:00:00:00:00:00")
SNP: Final = "sev-snp"
QEMU_WITH_SEV_ES: Final = 8_000_000
TDX_MODE: Final = "host-passthrough"
"""The CPU that a guest with TDX needs."""


def describe(reading: HypervisorReading) -> HostTopology:
    """Return what libvirt reports, without cells where it reports no topology.

    The cell that a device names need not be one of the cells.
    """
    host = reading.capabilities
    by_address = {device.function.address: device for device in reading.devices.pci}
    functions = {address: by_address[address] for address in sorted(by_address, key=order)}
    vdpa = {device.parent: device.vdpa for device in reading.devices.vdpa}
    pci_devices = tuple(
        replace(
            device.function,
            vfs=tuple(vf for vf in device.function.vfs if vf in functions),
            vdpa=vdpa.get(device.name),
        )
        for device in functions.values()
    )
    interfaces: dict[str, list[NetNodeDevice]] = defaultdict(list)
    for net in sorted(reading.devices.net, key=lambda net: net.interface):
        interfaces[net.parent].append(net)
    ports = tuple(_ports(pci_devices, functions, interfaces))
    return HostTopology(
        hostname=reading.hostname,
        cells=host.cells,
        cpus=host.cpus,
        online_cpus=reading.online_cpus or tuple(cpu.id for cpu in host.cpus),
        present_cpus=reading.present_cpus or tuple(cpu.id for cpu in host.cpus),
        cpu_model=CpuModel(
            host.arch, host.vendor, host.model, (), reading.guest_features, libvirt_model=host.model
        ),
        memory_kib=reading.memory_kib or sum(cell.memory_kib for cell in host.cells),
        pci_devices=pci_devices,
        nics=tuple(port for port in ports if not port.is_infiniband),
        infiniband_ports=tuple(port for port in ports if port.is_infiniband),
        gpus=tuple(_gpus(pci_devices, functions, _mdevs(reading.devices))),
        memory_encryption=encryption(reading),
        warnings=reading.warnings,
    )


_Functions = Mapping[PciAddress, PciNodeDevice]


def _ports(
    pci_devices: tuple[PciDevice, ...],
    functions: _Functions,
    interfaces: Mapping[str, list[NetNodeDevice]],
) -> Iterator[NicPort]:
    by_address = {device.address: device for device in pci_devices}
    for device in pci_devices:
        function = functions[device.address]
        own = interfaces.get(function.name, [])
        kind = _network_kind(device, own)
        if device.is_vf or kind is None:
            continue
        features = {feature for net in own for feature in net.features}
        yield NicPort(
            address=device.address,
            vendor_id=device.vendor_id,
            product_id=device.product_id,
            numa_node=device.numa_node,
            names=tuple(net.interface for net in own),
            mac=own[0].mac if own and kind == ETHERNET else None,
            mac_permanent=False,  # libvirt does not report where an address comes from
            speed_mbps=own[0].speed_mbps if own else None,
            is_pf=device.is_pf,
            vfs=tuple(
                NicVf(
                    vf,
                    index,
                    netdev=next(
                        (net.interface for net in interfaces.get(functions[vf].name, [])), None
                    ),
                    in_use_by_host=False,  # libvirt does not report who has an interface
                    vdpa=by_address[vf].vdpa,
                )
                for index, vf in enumerate(device.vfs)
            ),
            serial=function.serial,
            features=tuple(sorted(features)),
            is_infiniband=kind == INFINIBAND,
        )


def _network_kind(device: PciDevice, own: list[NetNodeDevice]) -> str | None:
    """Return the kind of port; the address of its interface shows it by its length."""
    if not device.class_code.startswith(NETWORK):
        return None
    mac = own[0].mac if own else None
    if mac is None:
        return network_kind(device.class_code)
    return ETHERNET if len(mac) == MAC_LENGTH else INFINIBAND


_Mdevs = Mapping[PciAddress, tuple[Mdev, ...]]


def _mdevs(devices: NodeDevices) -> _Mdevs:
    """Return the mediated devices that take up a part of their parent: those that are active."""
    by_parent: dict[PciAddress, list[Mdev]] = defaultdict(list)
    for mdev in sorted(devices.mdevs, key=lambda mdev: mdev.uuid):
        if mdev.active and mdev.parent_address is not None:
            by_parent[mdev.parent_address].append(Mdev(mdev.type_id, mdev.uuid))
    return {parent: tuple(mdevs) for parent, mdevs in by_parent.items()}


def _gpus(
    pci_devices: tuple[PciDevice, ...], functions: _Functions, mdevs: _Mdevs
) -> Iterator[PhysicalGpu]:
    for device in pci_devices:
        family = (device.address, *device.vfs)
        makes_mdevs = any(functions[member].mdev_types or member in mdevs for member in family)
        if device.physfn in functions or not (is_gpu(device) or makes_mdevs):
            continue
        yield PhysicalGpu(
            address=device.address,
            vendor_id=device.vendor_id,
            product_id=device.product_id,
            numa_node=device.numa_node,
            vfs=tuple(
                GpuVf(
                    address=vf,
                    index=index,
                    numa_node=functions[vf].function.numa_node,
                    mdev_types=functions[vf].mdev_types,
                    mdevs=mdevs.get(vf, ()),
                )
                for index, vf in enumerate(device.vfs)
            ),
            mdev_types=functions[device.address].mdev_types,
            mdevs=mdevs.get(device.address, ()),
        )


def encryption(reading: HypervisorReading) -> MemoryEncryption:
    """Return what libvirt reports of encrypted guests of the host's own architecture."""
    host_arch = reading.capabilities.arch
    domains = [domain for domain in reading.domain_capabilities if domain.arch == host_arch]
    sev = max((domain.sev_guests or 0 for domain in domains), default=0)
    # libvirt counts the keys of SEV-ES whatever QEMU can start
    starts_sev_es = reading.hypervisor_version >= QEMU_WITH_SEV_ES
    counts = (domain.sev_es_guests or 0 for domain in domains if starts_sev_es)
    sev_es = max(counts, default=0)
    return MemoryEncryption(
        amd_sev=sev > 0,
        amd_sev_es=sev_es > 0,
        amd_sev_snp=sev_es > 0 and any(SNP in domain.launch_security for domain in domains),
        intel_tdx=reading.guest_cpu_mode == TDX_MODE and any(domain.tdx for domain in domains),
        capacity=tuple(pair for pair in (("sev", sev), ("sev_es", sev_es)) if pair[1]),
    )
