"""Facts of a machine, as values: frozen, ordered, hashable, and free of any notion of placement.

Every tuple is sorted and every number is in one unit, so that reading the same machine twice gives
equal facts; whatever moves by itself (free memory, counters, load) is not a fact. `None` always
means "the machine does not report it", never "reading went wrong": what went wrong is a sentence in
`HostTopology.warnings`.

How the pieces refer to each other (all by id, never by object):

    HostTopology
     ├ cells ─ NumaCell.id ◄────────────┐ numa_node: an id of `cells`, or None
     ├ cpus ── Cpu.id ◄─ NumaCell.cpus  │
     ├ pci_devices ─ PciDevice.address ─┤ physfn ─► address of the PF,  vfs ─► addresses of VFs
     ├ nics ── NicPort.address ─────────┤ a PCI function that is an Ethernet port, not a VF
     │         └ vfs ─ NicVf.address    │ infiniband_ports: likewise
     └ gpus ── PhysicalGpu.address ─────┘ a whole GPU; its VFs are in `vfs`
"""

from __future__ import annotations

from typing import NewType

from msgspec import Struct, field

CellId = NewType("CellId", int)
CpuId = NewType("CpuId", int)

PciAddress = NewType("PciAddress", str)
"""A PCI function, lower case, four or more digits of domain:

    0000:81:00.1
    │    │  │  └ function: a port of a card; also what VFs are numbered through
    │    │  └ device ("slot"): a card, as far as one bus can tell
    │    └ bus
    └ domain: usually 0000; wider than 16 bits behind Intel VMD (10000:e1:00.0)
"""


class HugePages(Struct, frozen=True, order=True):
    """A pool of huge pages of one size on one cell."""

    size_kib: int
    total: int
    """Pages, those in use included."""


class NumaCell(Struct, frozen=True):
    """A NUMA node as the kernel sees it: CPUs and memory at one distance."""

    id: CellId
    cpus: tuple[CpuId, ...]
    """Online CPUs, ascending; empty for a memory-only node (CXL, PMEM as RAM, GPU memory)."""
    memory_kib: int
    """All memory of the cell, huge pages included; 0 for a node with CPUs only."""
    huge_pages: tuple[HugePages, ...] = ()
    """By page size; sizes without a page are listed too."""
    distances: tuple[tuple[CellId, int], ...] = ()
    """SLIT distances to every cell, itself (usually 10) included, by cell id; () = unknown."""
    gpu_memory_of: PciAddress | None = None
    """The GPU whose own memory this cell is (Grace Hopper): no memory for guests."""
    offline_cpus: tuple[CpuId, ...] = ()
    """CPUs that are switched off, ascending, as far as they are known."""


MEMORY_TOLERANCE = 10
"""Cells and host may differ by one part in so many before the difference matters."""


class Cpu(Struct, frozen=True):
    """A logical CPU (hardware thread) that is online."""

    id: CpuId
    siblings: tuple[CpuId, ...]
    """Online threads of the same core, itself included: more than one = hyper-threading."""
    package: int | None = None
    """The socket."""
    l3: int | None = None
    """The lowest CPU of those that share its cache of level 3: a name for it."""


class CpuModel(Struct, frozen=True):
    """What kind of CPUs the host has."""

    arch: str
    """As `uname -m` prints it: x86_64, aarch64, ppc64le, s390x, riscv64, ..."""
    vendor: str | None
    model_name: str | None
    flags: tuple[str, ...]
    """The kernel's names (x86 `flags`: pni, ...; arm `Features`: asimd, ...), sorted."""
    guest_features: tuple[str, ...] | None = None
    """Features of the CPU that a hypervisor gives guests, by libvirt's names (sse4.1, md-clear,
    ...), sorted. None: they get this CPU with its `flags`."""
    address_bits: int | None = None
    """Of a physical address; None = not reported."""
    libvirt_model: str | None = None
    """libvirt's name of the model that is nearest."""


class PciDevice(Struct, frozen=True):
    """A PCI function. Ids are lower-case hex without 0x: as in 8086, 10ed, 020000."""

    address: PciAddress
    vendor_id: str
    product_id: str
    class_code: str
    numa_node: CellId | None = None
    bridges: tuple[PciAddress, ...] = ()
    """PCI bridges between root bus and device, the root port first: one for a device in a slot of
    its own, three or more behind a switch. Empty on the root bus itself, on VFs (their PF's), and
    where unknown."""
    physfn: PciAddress | None = None
    """Set on a VF: its PF."""
    total_vfs: int = 0
    """How many VFs the function can make (`sriov_totalvfs`); > 0 = it is a PF."""
    vfs: tuple[PciAddress, ...] = ()
    """The VFs that exist, by VF number."""
    vdpa: str | None = None
    """Name of the vDPA device made from this function."""

    @property
    def is_pf(self) -> bool:
        return self.total_vfs > 0

    @property
    def is_vf(self) -> bool:
        return self.physfn is not None

    @property
    def kind(self) -> str:
        return "VF" if self.is_vf else "PF" if self.is_pf else "PCI"


class NicVf(Struct, frozen=True):
    """A virtual function of a network port."""

    address: PciAddress
    index: int
    netdev: str | None
    in_use_by_host: bool
    """The host itself talks through it: enslaved, or up with an address. No guest can have it."""
    vdpa: str | None = None


class NicPort(Struct, frozen=True):
    """A network function that is not a VF; with `is_pf`, one that can make VFs."""

    address: PciAddress
    vendor_id: str
    product_id: str
    numa_node: CellId | None
    names: tuple[str, ...]
    """Every uplink interface: some cards have two ports behind one function. None when it is bound
    to vfio-pci or the like."""
    mac: str | None
    mac_permanent: bool
    """Burnt into the card (`addr_assign_type` 0), not made up or set by an administrator."""
    speed_mbps: int | None
    """None = the link is down, or its speed is not reported."""
    is_pf: bool
    vfs: tuple[NicVf, ...]
    """The VFs that exist and could be read, by VF number."""
    serial: str | None = None
    """Serial number in the vital product data, which only root may read."""
    features: tuple[str, ...] = ()
    """Offloads by libvirt's names (rx, tso, ...), sorted; sysfs shows only rdma and switchdev (it
    switches between representors of its VFs)."""
    is_infiniband: bool = False
    in_use_by_host: bool = False
    """As of a VF: the host itself talks through an interface of the port."""

    @property
    def name(self) -> str | None:
        return self.names[0] if self.names else None


class NicCard(Struct, frozen=True):
    """The ports of one adapter: same domain:bus:device, or same serial number and root port."""

    address: PciAddress
    """Of the first port: function 0 of the card."""
    ports: tuple[PciAddress, ...]
    """Ports that can make VFs, ascending."""
    numa_node: CellId | None
    serial: str | None = None
    mac: str | None = None
    """Permanent MAC address of the first port: the card's identity; None if not permanent."""


class MdevType(Struct, frozen=True):
    """A type of mediated device (vGPU) that a device offers."""

    id: str
    """As one writes it in the configuration: nvidia-35, i915-GVTg_V5_4."""
    available_instances: int
    """How many more of this type could be made on that device right now."""


class Mdev(Struct, frozen=True):
    """A mediated device, or a vGPU of the vendor's own VFIO driver, that exists."""

    type_id: str
    uuid: str | None
    """None for a vGPU of the vendor's driver: there the VF itself is what a guest gets."""


class GpuVf(Struct, frozen=True):
    """A virtual function of a GPU; on GPUs with SR-IOV this is what makes vGPUs."""

    address: PciAddress
    index: int
    numa_node: CellId | None
    mdev_types: tuple[MdevType, ...] = ()
    mdevs: tuple[Mdev, ...] = ()


class MigProfile(Struct, frozen=True):
    """What a MIG partition *is*: a shape a GPU can be cut into. Compare `MigDevice`."""

    name: str
    """1g.10gb, 1g.10gb+me, 1c.3g.40gb, ..."""
    profile_id: int
    slices: int
    memory_mib: int
    max_instances: int
    """How many of it fit on an otherwise empty GPU."""


class GpuInstance(Struct, frozen=True, order=True):
    """A part of a GPU with MIG that exists *now*; in it lie MIG devices, or a vGPU."""

    start: int
    """First of the memory slices that it has: with the GPU and the profile its identity, as ids
    are used again for others."""
    size: int
    """Memory slices."""
    profile_id: int
    id: int


class MigDevice(Struct, frozen=True):
    """A MIG partition that exists *now*: its ids are used again for others after it is gone."""

    uuid: str
    profile: str
    """Name of its `MigProfile`."""
    gpu_instance: int
    compute_instance: int
    start: int | None = None
    """Of its `GpuInstance`; None = not reported."""
    size: int | None = None


class VgpuType(Struct, frozen=True):
    """A vGPU type as NVML describes it; `id` is that of the `MdevType`."""

    id: str
    name: str
    framebuffer_mib: int | None
    max_instances: int | None
    max_instances_per_guest: int | None
    gpu_instance_profile: int | None
    """The MIG profile id a vGPU of this type sits on; None = time-sliced."""
    max_instances_per_gpu_instance: int | None = None
    """How many share one `GpuInstance`; None = not reported, which is 1."""
    placements: tuple[int, ...] = ()
    """Where a vGPU of this type may begin in the GPU's memory while sizes are mixed, ascending;
    empty = sizes are not mixed, or not reported."""
    placement_size: int = 0
    """How much of the memory it then has, in the unit of `placements`."""


class NvLink(Struct, frozen=True, order=True):
    """The active NVLinks of a GPU to one other device."""

    remote: PciAddress
    kind: str
    """gpu, switch, cpu or unknown."""
    links: int


class NvmlFacts(Struct, frozen=True, kw_only=True):
    """What NVML adds to the facts of a GPU; None or empty = it does not report it."""

    model: str | None = None
    uuid: str | None = None
    serial: str | None = None
    compute_capability: tuple[int, int] | None = None
    mig_enabled: bool | None = None
    mig_devices: tuple[MigDevice, ...] = ()
    mig_remaining: tuple[tuple[str, int], ...] = ()
    """How many more of each profile the layout of now leaves room for, by the profile's name. They
    share the room: making one takes from the others."""
    gpu_instances: tuple[GpuInstance, ...] | None = None
    """None = MIG is off, or they are not reported."""
    vgpu_types: tuple[VgpuType, ...] = ()
    vgpu_sizes_mixed: bool | None = None
    """vGPUs of different sizes may share the GPU's time (heterogeneous mode)."""
    nvlinks: tuple[NvLink, ...] | None = None
    """By remote; None = not reported."""
    critical_xid: int | None = None
    """The last error that NVIDIA's driver reported since NVML was first read, until it is
    forgotten, after which no guest should get the GPU."""


class PhysicalGpu(NvmlFacts, frozen=True):
    """A GPU (or another PCI device that makes mediated devices), whole; never one of its VFs.

    PCI facts come from sysfs and are always there. What NVML adds, or the driver of another maker
    shows, is None or empty where that does not see the device (one bound to vfio-pci).
    """

    address: PciAddress
    vendor_id: str
    product_id: str
    numa_node: CellId | None
    vfs: tuple[GpuVf, ...] = ()
    mdev_types: tuple[MdevType, ...] = ()
    """Offered by the whole device; a GPU with SR-IOV offers none itself, its VFs do."""
    mdevs: tuple[Mdev, ...] = ()
    nvml: bool = False
    """NVML sees the device."""
    memory_mib: int | None = None
    """Its own memory, as drivers of AMD and Intel show it."""
    link_group: str | None = None
    """Name of the hive whose GPUs reach each other over XGMI."""


class DiskStore(Struct, frozen=True):
    """The file system, volume group or pool that holds the guests' disks."""

    path: str
    """Of the file system, or what it is: `volume group nova`, `pool vms`."""
    size_bytes: int


class PmemNamespace(Struct, frozen=True):
    """A part of persistent memory that can be given to a guest."""

    name: str
    """As an administrator named it with `ndctl create-namespace --name`."""
    size_bytes: int
    align_bytes: int | None
    """None: it is not of mode devdax, so that no guest can map it."""
    device: str | None
    """/dev/dax0.0, or /dev/pmem0 of another mode; None: it is disabled."""


class MemoryEncryption(Struct, frozen=True):
    """What KVM and the cgroup controller `misc` report of encrypted guests."""

    amd_sev: bool = False
    amd_sev_es: bool = False
    amd_sev_snp: bool = False
    intel_tdx: bool = False
    capacity: tuple[tuple[str, int], ...] = ()
    """Contexts by the kernel's names (sev, sev_es, tdx), sorted."""


class HostTopology(Struct, frozen=True):
    """Everything that was found on one host."""

    hostname: str
    cells: tuple[NumaCell, ...]
    """By id; numbers may have gaps. Never empty: a kernel without NUMA gives one cell 0."""
    cpus: tuple[Cpu, ...]
    online_cpus: tuple[CpuId, ...]
    present_cpus: tuple[CpuId, ...]
    """CPUs that exist, offline ones included."""
    cpu_model: CpuModel
    memory_kib: int
    pci_devices: tuple[PciDevice, ...] = ()
    nics: tuple[NicPort, ...] = ()
    """Of Ethernet."""
    infiniband_ports: tuple[NicPort, ...] = ()
    gpus: tuple[PhysicalGpu, ...] = ()
    disk: DiskStore | None = None
    disk_fault: str | None = None
    """Why no disk was found where one was looked for, and what to do."""
    pmem: tuple[PmemNamespace, ...] | None = None
    """Namespaces of persistent memory, by name; None: not looked for, or `pmem_fault`."""
    pmem_fault: str | None = None
    memory_encryption: MemoryEncryption = field(default_factory=MemoryEncryption)
    warnings: tuple[str, ...] = ()
    """What was left out or guessed, one sentence each, naming the path and the reason."""

    @property
    def hyperthreading(self) -> bool:
        return any(len(cpu.siblings) > 1 for cpu in self.cpus)
