"""Facts that libvirt reports, as values; see `compute_agent.discovery.facts` for the rules.

HypervisorReading
├ capabilities        ─ HostCapabilities: cells, CPUs, the host's CPU model, emulators
├ domain_capabilities ─ DomainCapabilities for each (architecture, machine type)
├ guest_features      ─ CPU features that a guest gets under the options
└ devices             ─ NodeDevices: PCI functions, network interfaces, mediated devices

Guest ── a domain, running or not, with all of the host that it holds
"""

from __future__ import annotations

from msgspec import Struct, field

from compute_agent.discovery.facts import (
    CellId,
    Cpu,
    CpuId,
    MdevType,
    NumaCell,
    PciAddress,
    PciDevice,
)


class Emulator(Struct, frozen=True):
    """A program that runs guests of one architecture."""

    arch: str
    path: str | None
    virt_types: tuple[str, ...]
    """Of `<domain type>`: kvm, qemu, lxc, ..., sorted."""
    machines: tuple[str, ...] = ()
    """Canonical machine types, sorted."""


class HostCapabilities(Struct, frozen=True):
    """What `virConnectGetCapabilities` reports (https://libvirt.org/formatcaps.html)."""

    arch: str
    vendor: str | None
    model: str | None
    """Name of libvirt's CPU model that is nearest to the host's CPU."""
    cpu_xml: str | None
    """The element `host/cpu`, for a baseline."""
    cells: tuple[NumaCell, ...]
    """Empty: libvirt reports no topology."""
    cpus: tuple[Cpu, ...]
    emulators: tuple[Emulator, ...]
    cpu_features: tuple[str, ...] = ()
    """Features of the host's CPU that its model does not include."""
    warnings: tuple[str, ...] = ()


class DomainCapabilities(Struct, frozen=True):
    """What guests of one machine type can have (https://libvirt.org/formatdomaincaps.html)."""

    arch: str
    machine: str | None
    virt_type: str
    host_model_xml: str | None = None
    """The mode's element as a `<cpu>`, for a baseline."""
    firmwares: tuple[str, ...] = ()
    """Kinds libvirt finds images for: bios, efi."""
    secure_boot: bool = False
    disk_buses: tuple[str, ...] = ()
    filesystems: tuple[str, ...] = ()
    """Drivers of directories of the host that guests can mount: path, virtiofs."""
    video_models: tuple[str, ...] = ()
    tpm_models: tuple[str, ...] = ()
    tpm_backends: tuple[str, ...] = ()
    tpm_versions: tuple[str, ...] = ()
    launch_security: tuple[str, ...] = ()
    """Types of `launchSecurity`: sev, sev-snp, tdx, s390-pv."""
    sev_guests: int | None = None
    """How many guests with SEV; None = unsupported or not reported."""
    sev_es_guests: int | None = None
    tdx: bool = False


class PciNodeDevice(Struct, frozen=True):
    """A PCI function, and what libvirt tells of it besides."""

    name: str
    """libvirt's: pci_0000_81_00_0."""
    function: PciDevice
    """It may have VFs that are not listed, and it never has a vDPA device."""
    mdev_types: tuple[MdevType, ...] = ()
    serial: str | None = None
    """Serial number of the vital product data."""


class NetNodeDevice(Struct, frozen=True):
    """A network interface of the host."""

    interface: str
    parent: str
    """Name of the node device that it belongs to."""
    mac: str | None = None
    speed_mbps: int | None = None
    features: tuple[str, ...] = ()
    name: str = ""
    """libvirt's: net_ens1f0_b4_96_91_00_00_01."""


class MdevNodeDevice(Struct, frozen=True):
    """A mediated device that is active, defined, or both."""

    name: str
    uuid: str
    type_id: str
    parent: str
    """Name of the node device that makes it."""
    parent_address: PciAddress | None
    """None: the parent is not a PCI function."""
    active: bool = True
    persistent: bool = False


class VdpaNodeDevice(Struct, frozen=True):
    """A vDPA device."""

    vdpa: str
    """The kernel's name: vdpa0."""
    parent: str
    """Name of the node device that it is made from."""
    path: str | None = None
    """Of its character device: /dev/vhost-vdpa-0; None: it has none, or libvirt does not report it.
    """


class NodeDevices(Struct, frozen=True):
    """Devices that libvirt lists, by name."""

    pci: tuple[PciNodeDevice, ...] = ()
    net: tuple[NetNodeDevice, ...] = ()
    mdevs: tuple[MdevNodeDevice, ...] = ()
    vdpa: tuple[VdpaNodeDevice, ...] = ()


class HypervisorReading(Struct, frozen=True):
    """Everything about the host that libvirt reported in one look."""

    hostname: str
    hypervisor: str
    """As `virConnectGetType` writes it: QEMU, LXC, TEST."""
    hypervisor_version: int
    """Major * 1,000,000 + minor * 1,000 + release."""
    libvirt_version: int
    memory_kib: int
    online_cpus: tuple[CpuId, ...]
    present_cpus: tuple[CpuId, ...]
    capabilities: HostCapabilities
    domain_capabilities: tuple[DomainCapabilities, ...] = ()
    guest_features: tuple[str, ...] | None = None
    """libvirt's names of the CPU features that a guest gets; None: libvirt cannot report them."""
    guest_cpu_mode: str | None = None
    """Of the CPUs that guests get: host-model, host-passthrough, custom or none."""
    devices: NodeDevices = field(default_factory=NodeDevices)
    warnings: tuple[str, ...] = ()


class GuestMdev(Struct, frozen=True):
    """A mediated device in a guest's description."""

    uuid: str
    type_id: str | None = None
    """None: the device does not exist now."""
    parent: PciAddress | None = None


class GuestMemory(Struct, frozen=True):
    """Memory of a guest that is in pages of one size.

    :param cell: the host cell that it cannot leave; None = it may be on any.
    :param page_size_kib: None = ordinary memory.
    """

    cell: CellId | None
    page_size_kib: int | None
    memory_kib: int


class Guest(Struct, frozen=True):
    """A domain, running or not, made by Nova, virt-install or a script."""

    uuid: str
    name: str
    is_running: bool
    """It has a process that holds CPUs and memory; a paused guest has one too."""
    vcpus: int
    """At most: those that are unplugged now are counted."""
    memory_kib: int
    vcpu_pins: tuple[tuple[int, CpuId], ...] = ()
    """vCPU -> the one host CPU that it is pinned to, as that is now while it runs."""
    wide_cpus: tuple[CpuId, ...] = ()
    """Host CPUs of the vCPUs that are pinned to several, all together."""
    widely_pinned_vcpus: int = 0
    """How many these are."""
    cpuset: tuple[CpuId, ...] = ()
    """Host CPUs for the vCPUs without a pin; empty = all."""
    emulator_cpus: tuple[CpuId, ...] = ()
    """Host CPUs for the threads that are not vCPUs, of the emulator and of disks; empty = as the
    vCPUs."""
    numa_cells: tuple[tuple[CellId, int, int], ...] = ()
    """(host cell, vCPUs, memory KiB) that it is bound to; empty = it floats."""
    page_size_kib: int | None = None
    """Size of the huge pages that all its memory is in; None = ordinary memory, or several."""
    memory: tuple[GuestMemory, ...] = ()
    """All of it, modules included, by cell and size of pages."""
    pci_addresses: tuple[PciAddress, ...] = ()
    """Host functions that are passed through, those of interfaces and disks included, ascending;
    in a reading also those behind `host_interfaces` and `vdpa_devices`."""
    host_interfaces: tuple[str, ...] = ()
    """Network interfaces of the host that only this guest sends through, by name."""
    vdpa_devices: tuple[str, ...] = ()
    """Paths of character devices, as /dev/vhost-vdpa-0."""
    mdevs: tuple[GuestMdev, ...] = ()
    pmem_paths: tuple[str, ...] = ()
