"""Encrypted guests by libvirt and by the parameters of KVM."""

from __future__ import annotations

from dataclasses import replace

from compute_agent.discovery.facts import MemoryEncryption
from compute_agent.discovery.libvirt import guest_abilities, source
from compute_agent.discovery.libvirt.described import encryption
from compute_agent.discovery.libvirt.differences import encryption_differences
from compute_agent.discovery.libvirt.facts import DomainCapabilities, HypervisorReading
from compute_agent.discovery.libvirt.join import join_encryption
from tests.fixtures.libvirt_documents import (
    SEV_DOMAIN_CAPABILITIES,
    TDX_DOMAIN_CAPABILITIES,
    X86_CAPABILITIES,
)

SNP = guest_abilities.parse_domain_capabilities(SEV_DOMAIN_CAPABILITIES)
TDX = guest_abilities.parse_domain_capabilities(TDX_DOMAIN_CAPABILITIES)
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
        capabilities=source.parse_capabilities(X86_CAPABILITIES),
        domain_capabilities=domains,
        guest_cpu_mode=mode,
    )


def test_libvirt_counts_the_guests_of_each_kind() -> None:
    assert encryption(reading(SNP)) == KVM_AMD._replace(capacity=(("sev", 410), ("sev_es", 99)))


def test_sev_es_needs_an_emulator_that_starts_such_guests() -> None:
    """libvirt counts the keys also where QEMU is older than 8.0."""
    old = encryption(replace(reading(SNP), hypervisor_version=7_002_022))
    assert (old.amd_sev, old.amd_sev_es, old.amd_sev_snp) == (True, False, False)
    assert old.capacity == (("sev", 410),)
    assert encryption(replace(reading(SNP), hypervisor_version=8_000_000)).amd_sev_es


def test_keys_without_the_type_of_guests_are_not_snp() -> None:
    assert not encryption(reading(replace(SNP, launch_security=("sev",)))).amd_sev_snp
    assert encryption(reading(replace(SNP, sev_guests=0, sev_es_guests=None))) == MemoryEncryption()


def test_tdx_needs_the_cpu_of_the_host() -> None:
    assert encryption(reading(TDX, mode="host-passthrough")).intel_tdx
    assert not encryption(reading(TDX, mode="host-model")).intel_tdx


def test_emulated_architectures_encrypt_nothing() -> None:
    assert encryption(reading(replace(SNP, arch="aarch64"))) == MemoryEncryption()


def test_what_kvm_has_switched_off_no_guest_gets() -> None:
    kernel = KVM_AMD._replace(amd_sev_snp=False, capacity=(("sev", 5), ("tdx", 31)))
    both = join_encryption(encryption(reading(SNP)), kernel)
    assert (both.amd_sev, both.amd_sev_es, both.amd_sev_snp) == (True, True, False)
    assert dict(both.capacity) == {"sev": 410, "sev_es": 99, "tdx": 31}
    [sentence] = encryption_differences(encryption(reading(SNP)), kernel)
    assert sentence.startswith("libvirt reports guests with SEV-SNP")


def test_what_kvm_has_and_libvirt_cannot_start_is_a_difference() -> None:
    sentences = list(
        encryption_differences(MemoryEncryption(), KVM_AMD._replace(amd_sev_snp=False))
    )
    assert [text.partition(" switched")[0] for text in sentences] == [
        "KVM has SEV",
        "KVM has SEV-ES",
    ]
