"""Encrypted guests: whether KVM can run them, and how many the machine has keys for.

Source: Documentation/arch/x86/amd-memory-encryption.rst, Documentation/admin-guide/cgroup-v2.rst
(section "Misc").
"""

from __future__ import annotations

from compute_agent.discovery.facts import MemoryEncryption
from compute_agent.discovery.sysfs.reader import Machine

AMD_SEV = "module/kvm_amd/parameters/sev"
AMD_SEV_ES = "module/kvm_amd/parameters/sev_es"
AMD_SEV_SNP = "module/kvm_amd/parameters/sev_snp"
INTEL_TDX = "module/kvm_intel/parameters/tdx"
CAPACITY = "fs/cgroup/misc.capacity"


def discover(machine: Machine) -> MemoryEncryption:
    """Read the module parameters and the number of contexts; a missing file is a no."""
    return MemoryEncryption(
        amd_sev=_on(machine, AMD_SEV),
        amd_sev_es=_on(machine, AMD_SEV_ES),
        amd_sev_snp=_on(machine, AMD_SEV_SNP),
        intel_tdx=_on(machine, INTEL_TDX),
        capacity=_capacity(machine),
    )


def _on(machine: Machine, path: str) -> bool:
    return machine.sys.optional_text(path) in ("1", "Y", "y")


def _capacity(machine: Machine) -> tuple[tuple[str, int], ...]:
    lines = (machine.sys.optional_text(CAPACITY) or "").splitlines()
    capacity = []
    for line in lines:
        name, _, number = line.partition(" ")
        if number.strip().isdecimal():
            capacity.append((name, int(number)))
        else:
            machine.warn(f"{machine.sys.path(CAPACITY)} holds {line!r}, expected a name and number")
    return tuple(sorted(capacity))
