"""Encrypted guests by libvirt and by the parameters of KVM."""

from __future__ import annotations

from dataclasses import replace

from compute_agent.discovery.facts import MemoryEncryption
from compute_agent.discovery.libvirt import capabilities, domain_capabilities
from compute_agent.discovery.libvirt.facts import DomainCapabilities, HypervisorReading
from compute_agent.discovery.libvirt.memory_encryption import describe, differences, join
from tests.fixtures.libvirt_documents import (
    SEV_DOMAIN_CAPABILITIES,
    TDX_DOMAIN_CAPABILITIES,
    X86_CAPABILITIES,
)

SNP = domain_capabilities.parse(SEV_DOMAIN_CAPABILITIES)
TDX = domain_capabilities.parse(TDX_DOMAIN_CAPABILITIES)
KVM_AMD = MemoryEncryption(amd_sev=True, amd_sev_es=True, amd_sev_snp=True)


def reading(*domains: DomainCapabilities, mode: str = "host-model") -> HypervisorReading:
    return HypervisorReading(
        hostname="host1",
        hypervisor="QEMU",
        hypervisor_version=9_001_000,
        libvirt_version=11_000_000,
        memory_kib=0,
        online_cpus=(),
        present_cpus=(),
        capabilities=capabilities.parse(X86_CAPABILITIES),
        domain_capabilities=domains,
        guest_cpu_mode=mode,
    )


def test_libvirt_counts_the_guests_of_each_kind() -> None:
    assert describe(reading(SNP)) == KVM_AMD._replace(capacity=(("sev", 410), ("sev_es", 99)))


def test_sev_es_needs_an_emulator_that_starts_such_guests() -> None:
    """libvirt counts the keys also where QEMU is older than 8.0."""
    old = describe(replace(reading(SNP), hypervisor_version=7_002_022))
    assert (old.amd_sev, old.amd_sev_es, old.amd_sev_snp) == (True, False, False)
    assert old.capacity == (("sev", 410),)
    assert describe(replace(reading(SNP), hypervisor_version=8_000_000)).amd_sev_es


def test_keys_without_the_type_of_guests_are_not_snp() -> None:
    assert not describe(reading(replace(SNP, launch_security=("sev",)))).amd_sev_snp
    assert describe(reading(replace(SNP, sev_guests=0, sev_es_guests=None))) == MemoryEncryption()


def test_tdx_needs_the_cpu_of_the_host() -> None:
    assert describe(reading(TDX, mode="host-passthrough")).intel_tdx
    assert not describe(reading(TDX, mode="host-model")).intel_tdx


def test_emulated_architectures_encrypt_nothing() -> None:
    assert describe(reading(replace(SNP, arch="aarch64"))) == MemoryEncryption()


def test_what_kvm_has_switched_off_no_guest_gets() -> None:
    kernel = KVM_AMD._replace(amd_sev_snp=False, capacity=(("sev", 5), ("tdx", 31)))
    both = join(describe(reading(SNP)), kernel)
    assert (both.amd_sev, both.amd_sev_es, both.amd_sev_snp) == (True, True, False)
    assert dict(both.capacity) == {"sev": 410, "sev_es": 99, "tdx": 31}
    [sentence] = differences(describe(reading(SNP)), kernel)
    assert sentence.startswith("libvirt reports guests with SEV-SNP")


def test_what_kvm_has_and_libvirt_cannot_start_is_a_difference() -> None:
    sentences = list(differences(MemoryEncryption(), KVM_AMD._replace(amd_sev_snp=False)))
    assert [text.partition(" switched")[0] for text in sentences] == [
        "KVM has SEV",
        "KVM has SEV-ES",
    ]
