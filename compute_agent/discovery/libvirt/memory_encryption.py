"""Encrypted guests: how many of each kind libvirt can start, and whether KVM lets it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from compute_agent.discovery.facts import MemoryEncryption
from compute_agent.discovery.libvirt.facts import HypervisorReading
from compute_agent.discovery.sysfs import encryption

SNP: Final = "sev-snp"
QEMU_WITH_SEV_ES: Final = 8_000_000
TDX_MODE: Final = "host-passthrough"
"""The CPU that a guest with TDX needs."""

_AMD_KINDS: Final = (
    ("amd_sev", "SEV", encryption.AMD_SEV),
    ("amd_sev_es", "SEV-ES", encryption.AMD_SEV_ES),
    ("amd_sev_snp", "SEV-SNP", encryption.AMD_SEV_SNP),
)


def describe(reading: HypervisorReading) -> MemoryEncryption:
    """Return what libvirt reports of guests of the host's own architecture."""
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


def join(libvirt: MemoryEncryption, kernel: MemoryEncryption) -> MemoryEncryption:
    """Return what both let guests have: numbers of libvirt, of TDX those of the kernel."""
    capacity = {**dict(kernel.capacity), **dict(libvirt.capacity)}
    return MemoryEncryption(
        amd_sev=libvirt.amd_sev and kernel.amd_sev,
        amd_sev_es=libvirt.amd_sev_es and kernel.amd_sev_es,
        amd_sev_snp=libvirt.amd_sev_snp and kernel.amd_sev_snp,
        intel_tdx=libvirt.intel_tdx,
        capacity=tuple(sorted(capacity.items())),
    )


def differences(libvirt: MemoryEncryption, kernel: MemoryEncryption) -> Iterator[str]:
    """Yield a sentence for each kind that one of them has and the other has not."""
    for field, kind, path in _AMD_KINDS:
        by_libvirt, by_kernel = bool(getattr(libvirt, field)), bool(getattr(kernel, field))
        if by_kernel and not by_libvirt:
            yield (
                f"KVM has {kind} switched on ({path}) and libvirt can start no such guest; none is "
                "reported. Check /dev/sev, the version of QEMU, and the number of keys that the "
                "firmware leaves to it"
            )
        elif by_libvirt and not by_kernel:
            yield (
                f"libvirt reports guests with {kind} and KVM has it switched off ({path}); none "
                "is reported"
            )
