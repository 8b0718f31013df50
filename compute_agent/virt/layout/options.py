"""Options that an operator has for a layout, as values. Nothing here reads a configuration."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from compute_agent.discovery.facts import PciAddress
from compute_agent.virt.cpu_sets import CpuSets
from compute_agent.virt.layout.device_spec import DeviceSpec
from compute_agent.virt.layout.pmem import PmemLabel


class Ratio(Struct, frozen=True):
    """Overcommit of one class.

    `fixed_ratio` (None = unset) wins over all, `initial` is for a new record; otherwise what
    placement has is kept.
    """

    fixed_ratio: float | None = None
    initial: float = 1.0

    def of(self, stored_ratio: float | None) -> float:
        """Return the ratio that is in force, given the one placement has (None = no record)."""
        if self.fixed_ratio:
            return self.fixed_ratio
        return self.initial if stored_ratio is None else stored_ratio


class ReservedPages(Struct, frozen=True):
    """Huge pages on a cell that software of the host uses."""

    cell: int
    size_kib: int
    count: int


class MdevTypeOptions(Struct, frozen=True):
    """One type of mediated device that is enabled."""

    type_id: str
    device_addresses: tuple[PciAddress, ...] = ()
    """Devices it is for; empty = all that no type names, if it is the first such type."""
    resource_class: str = "VGPU"
    max_instances: int | None = None


class GpuOptions(Struct, frozen=True):
    mdev_types: tuple[MdevTypeOptions, ...] = ()
    """In the order in which they are enabled."""
    vf_providers: str = "auto"
    """auto, per_vf or per_pf."""
    max_vgpus_per_guest: int | None = None
    type_traits: bool = True
    mig_classes: bool = False
    nvlink_traits: bool = True
    report_memory_cells: bool = False
    numa_node_override: Mapping[PciAddress, int] = {}


class NicOptions(Struct, frozen=True):
    report_vfs: str = "auto"
    """auto (nested layout only), always or never."""
    report_bandwidth: bool = False
    bandwidth_share: float = 0.9
    physnets: Mapping[str, str] = {}
    """Physical network by interface."""
    numa_node_override: Mapping[PciAddress, int] = {}


class PciOptions(Struct, frozen=True):
    report: bool = False
    device_specs: tuple[DeviceSpec, ...] = ()
    report_root_ports: bool = False


class LayoutOptions(Struct, frozen=True):
    is_nested: bool = False
    """One provider per NUMA cell, instead of everything on the root."""
    cpu_sets: CpuSets = field(default_factory=CpuSets)
    cpu_power_management: bool = False
    reserved_cpus: int = 0
    reserved_memory_mib: int = 512
    reserved_memory_mib_per_cell: Mapping[int, int] = {}
    reserved_pages: tuple[ReservedPages, ...] = ()
    reserved_disk_mib: int = 0
    image_cache_bytes: int = 0
    file_backed_memory_mib: int = 0
    tdx_guests: int | None = None
    network_cells: Mapping[str, frozenset[int]] = {}
    """Cells that are near a network, by the group of options that names them."""
    ratios: Mapping[str, Ratio] = field(
        default_factory=lambda: {
            "VCPU": Ratio(initial=4.0),
            "MEMORY_MB": Ratio(),
            "DISK_GB": Ratio(),
        }
    )
    gpu: GpuOptions = field(default_factory=GpuOptions)
    nic: NicOptions = field(default_factory=NicOptions)
    pci: PciOptions = field(default_factory=PciOptions)
    pmem: tuple[PmemLabel, ...] = ()
