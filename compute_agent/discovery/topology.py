"""One `HostTopology`, joined from what the sources found on one machine."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from compute_agent.discovery.facts import HostTopology, NumaCell, NvmlFacts, PhysicalGpu
from compute_agent.discovery.nvml import NvmlReading
from compute_agent.discovery.storage import DiskSource, measure
from compute_agent.discovery.sysfs import cells, cpus, gpus, memory, nics, pci
from compute_agent.discovery.sysfs.reader import PROCFS, SYSFS, Machine, ReadFile, read_file
from compute_agent.discovery.sysfs.vpd import SerialNumbers

HOSTNAME = "sys/kernel/hostname"


class GpuSource(Protocol):
    """Adds to the GPUs that sysfs knows: NVML, or a recording of it."""

    def read(self) -> NvmlReading: ...


class Discovery(Struct, eq=False):
    """Reads one machine again and again, and keeps what never changes between two looks."""

    sysfs_root: str = SYSFS
    procfs_root: str = PROCFS
    gpu_source: GpuSource | None = None
    read: ReadFile = read_file
    _serials: SerialNumbers = field(default_factory=SerialNumbers)

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
        reading = self.gpu_source.read() if self.gpu_source else NvmlReading()
        gpu_of_memory = memory.gpu_memory(machine) | {
            gpu.memory_cell: gpu.address for gpu in reading.gpus if gpu.memory_cell is not None
        }
        found_disk, disk_fault = measure(disk_source) if disk_source else (None, None)
        return HostTopology(
            hostname=hostname or machine.proc.optional_text(HOSTNAME) or socket.gethostname(),
            cells=tuple(
                replace(cell, gpu_memory_of=gpu_of_memory.get(cell.id)) for cell in found_cells
            ),
            cpus=found_cpus.cpus,
            online_cpus=found_cpus.online,
            present_cpus=found_cpus.present,
            cpu_model=found_cpus.model,
            memory_kib=memory_kib,
            pci_devices=devices,
            nics=tuple(port for port in ports if not port.is_infiniband),
            infiniband_ports=tuple(port for port in ports if port.is_infiniband),
            gpus=tuple(
                _join_gpus(machine, gpus.discover(machine, functions), reading, found_cells)
            ),
            disk=found_disk,
            disk_fault=disk_fault,
            memory_encryption=memory.encryption(machine),
            warnings=(*machine.warnings, *reading.warnings),
        )


def _join_gpus(
    machine: Machine,
    gpus: tuple[PhysicalGpu, ...],
    reading: NvmlReading,
    cells: tuple[NumaCell, ...],
) -> Iterator[PhysicalGpu]:
    """Yield the GPUs of sysfs with NVML's facts of the same addresses, without lost GPUs."""
    gpus_by_address = {gpu.address: gpu for gpu in reading.gpus}
    for address in sorted(gpus_by_address.keys() - {gpu.address for gpu in gpus}):
        machine.warn(f"NVML sees GPU {address}, sysfs does not; left out")
    ids = frozenset(cell.id for cell in cells)
    for gpu in gpus:
        nvml_gpu = gpus_by_address.get(gpu.address)
        if gpu.address in reading.lost_gpus:
            continue
        if nvml_gpu is None:
            yield gpu
            continue
        near = [cell for cell in nvml_gpu.near_cells if cell in ids]
        # the PCI bus goes first; NVML helps where firmware reports nothing
        cell = gpu.numa_node if gpu.numa_node is not None or len(near) != 1 else near[0]
        facts = {name: getattr(nvml_gpu, name) for name in NvmlFacts.__struct_fields__}
        yield replace(gpu, numa_node=cell, nvml=True, **facts)
