"""Captures: copies of what can be learnt of a machine, to look at it elsewhere.

    DIR/sys/...            the files and links below /sys that discovery or libvirt read
    DIR/proc/...           likewise below /proc
    DIR/capture.json       what is in neither: host name, disk, NVML, persistent memory; and what
                           could not be read

It takes more than today's discovery reads, so that a capture in a bug report still serves when more
is read. It writes no memory, no configuration of software and no data of guests, but does hold
serial numbers and MAC addresses.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from compute_agent.discovery import storage
from compute_agent.discovery.errors import FactMalformed, FactUnreadable
from compute_agent.discovery.facts import (
    DiskStore,
    HostTopology,
    PmemNamespace,
)
from compute_agent.discovery.nvml import NvmlGpu, NvmlReading
from compute_agent.discovery.pci_address import pci_address
from compute_agent.discovery.storage import DiskSource, measure
from compute_agent.discovery.sysfs.cpus import ARCH, kernel_arch
from compute_agent.discovery.sysfs.memory import GPUS
from compute_agent.discovery.sysfs.reader import NO_VALUE, PROCFS, SYSFS, Machine, read_file
from compute_agent.discovery.topology import HOSTNAME, Discovery, GpuSource
from compute_agent.programs.decoding import decode

FORMAT: Final = 1
DESCRIPTION = "capture.json"

SYS_TREES = (
    "bus/mdev/devices",
    "bus/pci/devices",
    "bus/pci/drivers",
    "class/iommu",
    "class/mdev_bus",
    "class/net",
    "devices/system/cpu",
    "devices/system/node",
    "devices/virtual/dmi/id",
    "devices/virtual/net",
    "fs/cgroup/misc.capacity",
    "kernel/iommu_groups",
    "kernel/mm/hugepages",
    "module/kvm/parameters",
    "module/kvm_amd/parameters",
    "module/kvm_intel/parameters",
)
BOOT_ID = "sys/kernel/random/boot_id"
ROOT_BUSES = "pci"  # below devices, one for each domain and root bus: pci0000:80
PROC_FILES = (
    *("cpuinfo", "meminfo", "net/route", "net/if_inet6", "version", HOSTNAME, BOOT_ID, ARCH),
    GPUS,
)

SKIPPED = frozenset(
    {
        # acting when read or written
        *("bind", "unbind", "new_id", "remove_id", "probe", "remove", "rescan", "reset", "rom"),
        *("flr", "create", "drivers_probe", "uevent_suppress"),
        # large or of no interest
        *("power", "msi_irqs", "trace", "statistics", "queues", "cpufreq", "cpuidle"),
        *("thermal_throttle", "microcode", "crash_notes", "crash_notes_size", "hwmon", "ptp"),
        # of caches of CPUs: all but level and who shares them
        *("coherency_line_size", "number_of_sets", "physical_line_partition", "shared_cpu_map"),
        *("ways_of_associativity", "write_policy", "allocation_policy"),
        *("ata_port", "scsi_host", "block", "nvme", "sound", "drm", "graphics", "usb_device"),
        *("counters", "gid_attrs", "gids", "hw_counters", "pkeys", "input", "leds", "rtc"),
        *("sas_host", "vmstat", "numastat", "memory_failure", "compact", "product_uuid"),
    }
)
SKIPPED_STARTS = ("resource", "host", "ata", "usb", "nvme", "wakeup", "memory", "i2c", "mdio")
FILE_LIMIT = 32768


class Description(Struct, frozen=True):
    """What of a machine is in neither tree, and what could not be read. Other keys are passed over.

    :param unreadable: files with the reason, and why the disk or persistent memory is not known.
    """

    format: Literal[1]
    hostname: str | None = None
    disk: DiskStore | None = None
    nvml: tuple[NvmlGpu, ...] = ()
    pmem: tuple[PmemNamespace, ...] | None = None
    unreadable: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def capture(
    directory: Path,
    *,
    sysfs_root: str = SYSFS,
    procfs_root: str = PROCFS,
    disk_source: DiskSource | None = None,
    hostname: str | None = None,
    gpu_source: GpuSource | None = None,
    with_pmem: bool = False,
) -> Path:
    """Write the machine below `directory`, which must be empty or new; returns it.

    `with_pmem`: ask ndctl for the namespaces of persistent memory as well.

    What cannot be read is left out and listed in capture.json.
    Raises FileExistsError when `directory` holds anything, OSError when it cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise FileExistsError(f"{directory} is not empty; a capture needs a directory of its own")
    copy = _Copy()
    machine = Machine(sysfs_root, procfs_root)
    roots = [name for name in machine.sys.names("devices") if name.startswith(ROOT_BUSES)]
    for tree in (*SYS_TREES, *(f"devices/{name}" for name in roots)):
        copy.tree(f"{sysfs_root}/{tree}", directory / "sys" / tree)
    for name in PROC_FILES:
        copy.tree(f"{procfs_root}/{name}", directory / "proc" / name, limit=1 << 22)
    # the architecture also where the kernel does not show it in a file, as newer ones do
    arch_path, arch = directory / "proc" / ARCH, kernel_arch(machine)
    if arch and not arch_path.exists():
        arch_path.parent.mkdir(parents=True, exist_ok=True)
        arch_path.write_text(f"{arch}\n")
    reading = gpu_source.read() if gpu_source else None
    found_disk, reason = measure(disk_source) if disk_source else (None, None)
    namespaces, pmem_fault = storage.list_namespaces() if with_pmem else (None, None)
    description = Description(
        FORMAT,
        hostname,
        found_disk,
        reading.gpus if reading else (),
        namespaces,
        (*sorted(copy.unreadable), *filter(None, (reason, pmem_fault))),
        tuple(reading.warnings) if reading else (),
    )
    text = json.dumps(to_builtins(description), indent=1, sort_keys=True)
    (directory / DESCRIPTION).write_text(text + "\n")
    return directory


def directory_of(sysfs_root: str, procfs_root: str) -> Path | None:
    """Return the capture that both roots belong to; None where they do not belong to one."""
    directory = Path(sysfs_root).parent
    roots = (directory / "sys", directory / "proc")
    if roots != (Path(sysfs_root), Path(procfs_root)):
        return None
    return directory if (directory / DESCRIPTION).is_file() else None


def replay(directory: Path, hostname: str | None = None, *, with_nvml: bool = True) -> HostTopology:
    """Read the topology of a captured machine.

    :param with_nvml: with what NVML reported of its GPUs.
    :raises DiscoveryError: (FactUnreadable, FactMalformed) `directory` is not a whole capture.
    """
    description = read_description(directory)
    source = RecordedGpus(description.nvml) if with_nvml else None
    discovery = Discovery(str(directory / "sys"), str(directory / "proc"), gpu_source=source)
    topology = discovery.discover(hostname=hostname or description.hostname)
    return replace(topology, disk=description.disk, pmem=description.pmem)


class _Copy:
    """Copies trees; remembers what it could not read. What it cannot *write* raises OSError."""

    def __init__(self) -> None:
        self.unreadable: set[str] = set()

    def tree(self, source: str, target: Path, limit: int = FILE_LIMIT) -> None:
        if os.path.islink(source):
            self._link(source, target)
        elif os.path.isdir(source):
            self._directory(source, target)
        elif os.path.exists(source):
            self._file(source, target, limit)

    def _directory(self, source: str, target: Path) -> None:
        try:
            names = sorted(os.listdir(source))
        except OSError as error:
            self._note(source, error)
            return
        target.mkdir(parents=True, exist_ok=True)
        for name in names:
            if name in SKIPPED or name.startswith(SKIPPED_STARTS):
                continue
            if name == "vpd" and not _is_ethernet(source):
                continue  # slow to read, and not needed
            self.tree(f"{source}/{name}", target / name)

    def _link(self, source: str, target: Path) -> None:
        try:
            where = os.readlink(source)
        except OSError as error:
            self._note(source, error)
            return
        if not os.path.lexists(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(where)

    def _file(self, source: str, target: Path, limit: int) -> None:
        try:
            if not os.stat(source).st_mode & 0o444:
                return  # to be written only
            data = read_file(source, limit)
        except OSError as error:
            self._note(source, error)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)

    def _note(self, source: str, error: OSError) -> None:
        if error.errno not in NO_VALUE:
            self.unreadable.add(f"{source}: {error.strerror}")


def _is_ethernet(directory: str) -> bool:
    try:
        return read_file(f"{directory}/class", 64).startswith(b"0x0200")
    except OSError:
        return False


def read_description(directory: Path) -> Description:
    """Return the description of a captured machine.

    :raises DiscoveryError: (FactUnreadable, FactMalformed) `directory` is not a whole capture.
    """
    path = directory / DESCRIPTION
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FactUnreadable(str(path), error) from error
    try:
        description = decode(content, Description)
        gpus = [_with_addresses(gpu) for gpu in description.nvml]
    except ValueError as error:
        expectation = f"the description of a capture ({error})"
        raise FactMalformed(str(path), content.decode(errors="replace"), expectation) from error
    return replace(description, nvml=tuple(sorted(gpus, key=lambda gpu: gpu.address)))


def _with_addresses(gpu: NvmlGpu) -> NvmlGpu:
    """Return a GPU whose addresses are spelled as the kernel spells them."""
    links = gpu.nvlinks and tuple(
        replace(link, remote=pci_address(link.remote)) for link in gpu.nvlinks
    )
    return replace(gpu, address=pci_address(gpu.address), nvlinks=links)


class RecordedGpus(Struct, frozen=True):
    """A source of GPU facts that were read earlier, perhaps on another machine."""

    gpus: tuple[NvmlGpu, ...]

    def read(self) -> NvmlReading:
        return NvmlReading(self.gpus)
