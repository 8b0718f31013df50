"""One `HostTopology`, joined from what the sources found on one machine."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Final, Protocol

from compute_agent.discovery.disk import DiskSource, measure
from compute_agent.discovery.facts import CellId, HostTopology, NumaCell, PciAddress, PhysicalGpu
from compute_agent.discovery.nvml.facts import NvmlGpu, NvmlReading
from compute_agent.discovery.sysfs import cells, cpus, encryption, gpus, memory, nics, pci
from compute_agent.discovery.sysfs.reader import PROCFS, SYSFS, Machine, ReadFile, read_file
from compute_agent.discovery.sysfs.vpd import SerialNumbers

HOSTNAME = "sys/kernel/hostname"


_OF_NVML: Final = (
    *("model", "uuid", "serial", "compute_capability", "critical_xid", "nvlinks"),
    *("mig_enabled", "mig_devices", "mig_remaining", "gpu_instances"),
    *("vgpu_types", "vgpu_sizes_mixed"),
)
"""Facts of a GPU that have the same name in both of its descriptions."""


class GpuSource(Protocol):
    """Adds to the GPUs that sysfs knows: NVML, or a recording of it."""

    def read(self) -> NvmlReading: ...


@dataclass(slots=True, eq=False)
class Discovery:
    """Reads one machine again and again, and keeps what never changes between two looks."""

    sysfs_root: str = SYSFS
    procfs_root: str = PROCFS
    _: KW_ONLY
    gpu_source: GpuSource | None = None
    read: ReadFile = read_file
    _serials: SerialNumbers = field(default_factory=SerialNumbers, init=False)

    def discover(
        self, disk_source: DiskSource | None = None, hostname: str | None = None
    ) -> HostTopology:
        """Look at the whole machine.

        `disk_source`: measures the store of the guests' disks; None = no disk is looked for.
        `hostname`: instead of the kernel's.

        Raises DiscoveryError when CPUs or memory of the host cannot be read. One device that
        cannot be read is left out, with a sentence in `warnings`.
        """
        machine = Machine(self.sysfs_root, self.procfs_root, self.read)
        memory_kib = memory.discover(machine)
        found_cpus = cpus.discover(machine)
        found_cells = cells.discover(machine, found_cpus, memory_kib)
        functions = pci.discover(machine, found_cells)
        devices = tuple(function.device for function in functions.values())
        ports = nics.discover(machine, functions, self._serials)
        ethernet_ports = tuple(port for port in ports if not port.is_infiniband)
        reading = self.gpu_source.read() if self.gpu_source else NvmlReading()
        found_disk, disk_fault = measure(disk_source) if disk_source else (None, None)
        found_gpus = join_gpus(machine, gpus.discover(machine, functions), reading, found_cells)
        return HostTopology(
            hostname=hostname or machine.proc.optional_text(HOSTNAME) or socket.gethostname(),
            cells=join_cells(found_cells, reading, memory.gpu_memory(machine)),
            cpus=found_cpus.cpus,
            online_cpus=found_cpus.online,
            present_cpus=found_cpus.present,
            cpu_model=found_cpus.model,
            memory_kib=memory_kib,
            pci_devices=devices,
            nics=ethernet_ports,
            infiniband_ports=tuple(port for port in ports if port.is_infiniband),
            nic_cards=nics.cards(ethernet_ports, devices),
            gpus=found_gpus,
            disk=found_disk,
            disk_fault=disk_fault,
            memory_encryption=encryption.discover(machine),
            warnings=(*machine.warnings, *reading.warnings),
        )


def join_gpus(
    machine: Machine,
    gpus: tuple[PhysicalGpu, ...],
    reading: NvmlReading,
    found_cells: tuple[NumaCell, ...],
) -> tuple[PhysicalGpu, ...]:
    """Return the GPUs of sysfs with NVML's facts of the same addresses, without lost GPUs."""
    gpus_by_address = {gpu.address: gpu for gpu in reading.gpus}
    for address in sorted(gpus_by_address.keys() - {gpu.address for gpu in gpus}):
        machine.warn(f"NVML sees GPU {address}, sysfs does not; left out")
    ids = frozenset(cell.id for cell in found_cells)
    return tuple(
        _with_nvml(gpu, gpus_by_address[gpu.address], ids)
        if gpu.address in gpus_by_address
        else gpu
        for gpu in gpus
        if gpu.address not in reading.lost_gpus
    )


def join_cells(
    cells: tuple[NumaCell, ...], reading: NvmlReading, listed_owners: Mapping[CellId, PciAddress]
) -> tuple[NumaCell, ...]:
    """Return the cells, with those marked that are the memory of a GPU.

    :param listed_owners: the GPUs of such cells by /proc.
    """
    owner = {gpu.memory_cell: gpu.address for gpu in reading.gpus if gpu.memory_cell is not None}
    owner = {**listed_owners, **owner}
    return tuple(replace(cell, gpu_memory_of=owner.get(cell.id)) for cell in cells)


def _with_nvml(gpu: PhysicalGpu, nvml_gpu: NvmlGpu, ids: frozenset[CellId]) -> PhysicalGpu:
    near = [cell for cell in nvml_gpu.near_cells if cell in ids]
    # the PCI bus goes first; NVML helps where firmware reports nothing
    cell = gpu.numa_node if gpu.numa_node is not None or len(near) != 1 else near[0]
    return replace(
        gpu,
        numa_node=cell,
        nvml=True,
        **{name: getattr(nvml_gpu, name) for name in _OF_NVML},
    )
