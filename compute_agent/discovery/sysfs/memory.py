"""Memory of the host and of one NUMA node, its pools of huge pages, and its encryption.

Source: Documentation/filesystems/proc.rst, Documentation/admin-guide/mm/hugetlbpage.rst; for the
memory of GPUs, hwloc, which leaves such nodes out by the same file; for encryption
Documentation/arch/x86/amd-memory-encryption.rst, Documentation/admin-guide/cgroup-v2.rst ("Misc").
"""

from __future__ import annotations

import re

from compute_agent.discovery.errors import DiscoveryError, FactMalformed
from compute_agent.discovery.facts import CellId, HugePages, MemoryEncryption, PciAddress
from compute_agent.discovery.pci_address import is_pci_address
from compute_agent.discovery.sysfs.reader import Machine

MEMINFO = "meminfo"
HOST_HUGE_PAGES = "kernel/mm/hugepages"
NODE_HUGE_PAGES = "hugepages"  # below the node's directory
TOTAL = "nr_hugepages"

GPUS = "driver/nvidia/gpus"  # of /proc; a directory for each, named after its address
NUMA_STATUS = "numa_status"

# module parameters of KVM, and the contexts of guests
AMD_SEV = "module/kvm_amd/parameters/sev"
AMD_SEV_ES = "module/kvm_amd/parameters/sev_es"
AMD_SEV_SNP = "module/kvm_amd/parameters/sev_snp"
INTEL_TDX = "module/kvm_intel/parameters/tdx"
CAPACITY = "fs/cgroup/misc.capacity"

_GPU_NODE = re.compile(r"^Node:\s+(\d+)\s*$", re.MULTILINE)
_TOTAL_LINE = re.compile(r"^(?:Node\s+\d+\s+)?MemTotal:\s+(\d+)\s+kB\s*$", re.MULTILINE)
_DEFAULT_PAGE = re.compile(r"^Hugepagesize:\s+(\d+)\s+kB\s*$", re.MULTILINE)
_SIZE = re.compile(r"hugepages-(\d+)kB")


def total_kib(text: str, path: str) -> int:
    """MemTotal of a `meminfo`, the host's or a node's. Raises FactMalformed."""
    match = _TOTAL_LINE.search(text)
    if match is None:
        raise FactMalformed(path, text, "a line 'MemTotal: <number> kB'")
    return int(match[1])


def default_huge_page_kib(machine: Machine) -> int | None:
    """Return the size of the huge pages that are given where none is named; None = unknown."""
    match = _DEFAULT_PAGE.search(machine.proc.optional_text(MEMINFO) or "")
    return int(match[1]) if match else None


def discover(machine: Machine) -> int:
    """Memory of the host in KiB. Raises DiscoveryError: nothing can be reported without it."""
    path = machine.proc.path(MEMINFO)
    try:
        return total_kib(machine.proc.text(MEMINFO), path)
    except DiscoveryError as error:
        raise DiscoveryError(f"memory of the host: {error}; check [host]procfs_root") from error


def huge_pages(machine: Machine, directory: str) -> tuple[HugePages, ...]:
    """Read the pools below a `hugepages` directory, by page size, without unreadable ones."""
    pools = []
    for name in machine.sys.names(directory):
        match = _SIZE.fullmatch(name)
        if match is None:
            continue
        try:
            total = machine.sys.count(f"{directory}/{name}/{TOTAL}")
        except DiscoveryError as error:
            machine.warn(f"{error}; huge pages of {match[1]} KiB in {directory} left out")
            continue
        pools.append(HugePages(int(match[1]), total))
    return tuple(sorted(pools))


def gpu_memory(machine: Machine) -> dict[CellId, PciAddress]:
    """Return the cells that are the memory of a GPU, as NVIDIA's driver lists them."""
    owners = {}
    for name in machine.proc.names(GPUS):
        node = _GPU_NODE.search(machine.proc.optional_text(f"{GPUS}/{name}/{NUMA_STATUS}") or "")
        if node is not None and is_pci_address(name):
            owners[CellId(int(node[1]))] = PciAddress(name)
    return owners


def encryption(machine: Machine) -> MemoryEncryption:
    """Read whether KVM can run encrypted guests, and for how many the machine has keys.

    A missing file is a no.
    """
    capacity = []
    for line in (machine.sys.optional_text(CAPACITY) or "").splitlines():
        name, _, number = line.partition(" ")
        if number.strip().isdecimal():
            capacity.append((name, int(number)))
        else:
            machine.warn(f"{machine.sys.path(CAPACITY)} holds {line!r}, expected a name and number")
    sev, sev_es, sev_snp, tdx = (
        machine.sys.optional_text(path) in ("1", "Y", "y")
        for path in (AMD_SEV, AMD_SEV_ES, AMD_SEV_SNP, INTEL_TDX)
    )
    return MemoryEncryption(sev, sev_es, sev_snp, tdx, tuple(sorted(capacity)))
