"""CPUs: those that are online, the threads that share a core, and their model.

Source: Documentation/admin-guide/cputopology.rst and
Documentation/ABI/stable/sysfs-devices-system-cpu of the kernel.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from compute_agent.discovery import cpu_list
from compute_agent.discovery.errors import DiscoveryError, FactMalformed
from compute_agent.discovery.facts import Cpu, CpuId, CpuModel
from compute_agent.discovery.sysfs.reader import PROCFS, Machine

CPUS = "devices/system/cpu"
ONLINE = f"{CPUS}/online"
PRESENT = f"{CPUS}/present"
SIBLINGS = ("topology/thread_siblings_list", "topology/core_cpus_list")  # old name, new name
PACKAGE = "topology/physical_package_id"
CPUINFO = "cpuinfo"
ARCH = "sys/kernel/arch"  # from 6.1 on

CPUINFO_LIMIT = 16384
"""Bytes. Every CPU repeats the block; the first one is enough, and on x86 each block costs the
kernel a measurement of that CPU's frequency."""

_ADDRESS_BITS = re.compile(r"([0-9]+) bits physical")
_CPU_DIRECTORY = re.compile(r"cpu(\d+)")


class Cpus(Struct, frozen=True):
    """Everything about CPUs that needs no NUMA cell."""

    cpus: tuple[Cpu, ...]
    online: tuple[CpuId, ...]
    present: tuple[CpuId, ...]
    model: CpuModel


def discover(machine: Machine) -> Cpus:
    """Read the CPUs. Raises DiscoveryError when not even their numbers can be learnt."""
    present = _cpus_of_list(machine, PRESENT)
    if not present:
        matches = filter(None, map(_CPU_DIRECTORY.fullmatch, machine.sys.names(CPUS)))
        present = tuple(sorted(CpuId(int(match[1])) for match in matches))
    online = _cpus_of_list(machine, ONLINE) or present
    model, cpu_count = _model(machine)
    if not online:
        # a container without /sys: the threads in /proc/cpuinfo are all there is to know
        online = present = tuple(CpuId(number) for number in range(cpu_count))
    if not online:
        raise DiscoveryError(
            f"no CPU found: neither {machine.sys.path(ONLINE)} nor {machine.proc.path(CPUINFO)} "
            "names one; check [host]sysfs_root and [host]procfs_root"
        )
    everyone = frozenset(online)
    cpus: dict[CpuId, Cpu] = {}
    for cpu in online:
        if cpu not in cpus:
            threads = _siblings(machine, cpu, everyone)
            cpus |= {thread: Cpu(thread, threads) for thread in threads if thread not in cpus}
    known_cpus = _with_places(machine, [cpus[cpu] for cpu in online])
    return Cpus(known_cpus, online, tuple(sorted(everyone.union(present))), model)


def _with_places(machine: Machine, cpus: Sequence[Cpu]) -> tuple[Cpu, ...]:
    """Return the CPUs with the package and the L3 cache of each, one file read for each of these.

    CPUs that share a core or a cache are of one package.
    """
    cache = _l3_cache(machine, cpus[0].id)
    places: dict[CpuId, tuple[int | None, int | None]] = {}
    for cpu in cpus:
        if cpu.id in places:
            continue
        here = f"{CPUS}/cpu{cpu.id}"
        sharing_cpus = _cpus_of_list(machine, f"{here}/{cache}/shared_cpu_list") if cache else ()
        text = machine.sys.optional_text(f"{here}/{PACKAGE}")
        package = int(text) if text is not None and text.strip().isdecimal() else None
        l3 = min(sharing_cpus) if sharing_cpus else None
        places |= {
            other: (package, l3)
            for other in {cpu.id, *cpu.siblings, *sharing_cpus}
            if other not in places
        }
    return tuple(replace(cpu, package=places[cpu.id][0], l3=places[cpu.id][1]) for cpu in cpus)


def _l3_cache(machine: Machine, cpu: CpuId) -> str | None:
    """Return the folder of the cache of level 3 below that of a CPU; None = there is none."""
    for name in machine.sys.names(f"{CPUS}/cpu{cpu}/cache"):
        if (machine.sys.optional_text(f"{CPUS}/cpu{cpu}/cache/{name}/level") or "").strip() == "3":
            return f"cache/{name}"
    return None


def _cpus_of_list(machine: Machine, path: str) -> tuple[CpuId, ...]:
    text = machine.sys.optional_text(path)
    if text is None:
        return ()
    try:
        return tuple(CpuId(number) for number in cpu_list.parse(text))
    except ValueError as error:
        machine.warn(f"{machine.sys.path(path)} is not a list of CPUs: {error}; ignored")
        return ()


def _siblings(machine: Machine, cpu: CpuId, online: frozenset[CpuId]) -> tuple[CpuId, ...]:
    for name in SIBLINGS:
        threads = _cpus_of_list(machine, f"{CPUS}/cpu{cpu}/{name}")
        if threads:
            # a container may be shown threads that it does not have
            return tuple(sorted({cpu, *(thread for thread in threads if thread in online)}))
    return (cpu,)


# -- what kind of CPU ----------------------------------------------------------------------


def _model(machine: Machine) -> tuple[CpuModel, int]:
    """Read the model, and how many CPUs /proc/cpuinfo lists (as far as it was read)."""
    try:
        text = machine.proc.text(CPUINFO, CPUINFO_LIMIT)
        model = model_from_cpuinfo(text, machine.proc.path(CPUINFO))
        cpu_count = sum(line.startswith("processor") for line in text.splitlines())
    except DiscoveryError as error:
        machine.warn(f"{error}; CPU model and flags are unknown")
        model, cpu_count = CpuModel(os.uname().machine, None, None, ()), 0
    return replace(model, arch=kernel_arch(machine) or model.arch), cpu_count


def kernel_arch(machine: Machine) -> str | None:
    """Return the architecture by the kernel's own word; None for a copy of one before 6.1."""
    shown_arch = machine.proc.optional_text(ARCH)
    is_own = shown_arch is None and machine.proc.root == PROCFS
    return os.uname().machine if is_own else shown_arch


def model_from_cpuinfo(text: str, path: str = f"/proc/{CPUINFO}") -> CpuModel:
    """Read the CPU model from the first block of /proc/cpuinfo, on any architecture.

    :raises FactMalformed: the text has not a single `name : value` line.
    """
    fields: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            fields.setdefault(name.strip(), value.strip())
    if not fields:
        raise FactMalformed(path, text, "lines of the form 'name : value'")
    flags = fields.get("flags") or fields.get("Features") or fields.get("features") or ""
    names = tuple(sorted(set(flags.split())))
    arch = _arch(fields, names)
    bits = _ADDRESS_BITS.match(fields.get("address sizes", ""))
    model_names = ("model name", "cpu", "Processor", "uarch")
    model_name = next((fields[name] for name in model_names if fields.get(name)), None)
    if model_name is None and (part := fields.get("CPU part")) is not None:
        # ARM kernels give numbers only: implementer and part identify the core
        model_name = f"{fields.get('CPU implementer', '?')}/{part}"
    return CpuModel(
        arch=arch,
        vendor=fields.get("vendor_id") or fields.get("CPU implementer") or fields.get("platform"),
        model_name=model_name,
        flags=names,
        address_bits=None if bits is None else int(bits[1]),
    )


def _arch(fields: dict[str, str], flags: tuple[str, ...]) -> str:
    """Derive the architecture from what its kernel writes, for copies of older kernels' files."""
    if "flags" in fields and "vendor_id" in fields:
        return "x86_64" if "lm" in flags else "i686"
    if "CPU implementer" in fields:
        return "aarch64" if {"asimd", "fp"} & set(flags) else "armv7l"
    if fields.get("vendor_id", "").startswith("IBM/S390"):
        return "s390x"
    if fields.get("isa", "").startswith("rv"):
        return "riscv64" if fields["isa"].startswith("rv64") else "riscv32"
    if "loongarch" in fields.get("ISA", ""):
        return "loongarch64" if "loongarch64" in fields["ISA"] else "loongarch32"
    if fields.get("type", "").startswith("sun4"):
        return "sparc64" if fields["type"] in ("sun4u", "sun4v") else "sparc"
    if fields.get("cpu", "").startswith("POWER"):
        return "ppc64le"  # both byte orders write it alike, and distributions have this one
    if fields.get("cpu model", "").startswith("MIPS") or "mips1" in fields.get("isa", ""):
        return "mips64" if "mips64" in fields.get("isa", "") else "mips"
    return os.uname().machine
