"""The CPU that guests get and their encryption, of libvirt's facts and those of the kernel."""

from __future__ import annotations

from msgspec.structs import replace

from compute_agent.discovery.facts import CpuId, CpuModel, HostTopology, MemoryEncryption
from compute_agent.discovery.libvirt import guest_abilities, source
from compute_agent.discovery.libvirt.described import encryption
from compute_agent.discovery.libvirt.differences import encryption_differences
from compute_agent.discovery.libvirt.facts import DomainCapabilities, HypervisorReading
from compute_agent.discovery.libvirt.join import join, join_encryption
from tests.fixtures.libvirt_documents import (
    SEV_DOMAIN_CAPABILITIES,
    TDX_DOMAIN_CAPABILITIES,
    X86_CAPABILITIES,
)

CPUS = tuple(map(CpuId, (0, 1)))
KERNEL = HostTopology(
    hostname="host1",
    cells=(),
    cpus=(),
    online_cpus=CPUS,
    present_cpus=CPUS,
    cpu_model=CpuModel("x86_64", "GenuineIntel", "Intel(R) Xeon(R)", ("avx2", "sse4_1")),
    memory_kib=1024**2,
)
READING = HypervisorReading(
    hostname="host1",
    hypervisor="QEMU",
    hypervisor_version=8_002_000,
    libvirt_version=9_000_000,
    memory_kib=1024**2,
    online_cpus=CPUS,
    present_cpus=CPUS,
    capabilities=source.parse_capabilities(X86_CAPABILITIES),
    guest_features=("aes",),
)

SNP = guest_abilities.parse_domain_capabilities(SEV_DOMAIN_CAPABILITIES)
TDX = guest_abilities.parse_domain_capabilities(TDX_DOMAIN_CAPABILITIES)
KVM_AMD = MemoryEncryption(amd_sev=True, amd_sev_es=True, amd_sev_snp=True)


def test_guests_have_the_features_that_libvirt_gives_them() -> None:
    model = join(READING, KERNEL).cpu_model
    name = "Skylake-Server-IBRS"
    assert model == replace(KERNEL.cpu_model, guest_features=("aes",), libvirt_model=name)
    elsewhere = join(READING, None).cpu_model
    assert elsewhere == CpuModel("x86_64", "Intel", name, (), ("aes",), libvirt_model=name)


def test_the_flags_of_the_host_do_not_stand_for_features_that_are_unknown() -> None:
    model = join(replace(READING, guest_features=None), KERNEL).cpu_model
    assert (model.flags, model.guest_features) == ((), None)


def test_containers_get_the_cpu_of_the_host() -> None:
    containers = replace(READING, hypervisor="LXC", guest_features=None)
    assert join(containers, KERNEL).cpu_model == KERNEL.cpu_model


def test_encryption_is_joined_and_a_difference_is_a_warning() -> None:
    encrypting = replace(READING, domain_capabilities=(SNP,))
    kernel = replace(KERNEL, memory_encryption=MemoryEncryption(amd_sev=True, amd_sev_es=True))
    topology = join(encrypting, kernel)
    assert topology.memory_encryption == MemoryEncryption(
        amd_sev=True, amd_sev_es=True, capacity=(("sev", 410), ("sev_es", 99))
    )
    assert any("SEV-SNP" in warning for warning in topology.warnings)
    assert join(encrypting, None).memory_encryption.amd_sev_snp


def test_a_hypervisor_that_reports_no_encryption_differs_from_nothing() -> None:
    kernel = replace(KERNEL, memory_encryption=MemoryEncryption(amd_sev=True))
    topology = join(READING, kernel)
    assert topology.memory_encryption == MemoryEncryption()
    assert not any("SEV" in warning for warning in topology.warnings)


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
    assert encryption(reading(SNP)) == replace(KVM_AMD, capacity=(("sev", 410), ("sev_es", 99)))


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
    assert encryption(reading(SNP, TDX, mode="host-passthrough")).intel_tdx
    assert not encryption(reading(SNP, mode="host-passthrough")).intel_tdx
    assert not encryption(reading(TDX, mode="host-model")).intel_tdx


def test_emulated_architectures_encrypt_nothing() -> None:
    assert encryption(reading(replace(SNP, arch="aarch64"))) == MemoryEncryption()


def test_what_kvm_has_switched_off_no_guest_gets() -> None:
    kernel = replace(KVM_AMD, amd_sev_snp=False, capacity=(("sev", 5), ("tdx", 31)))
    both = join_encryption(encryption(reading(SNP)), kernel)
    assert (both.amd_sev, both.amd_sev_es, both.amd_sev_snp) == (True, True, False)
    for one, other in ((KVM_AMD, MemoryEncryption()), (MemoryEncryption(), KVM_AMD)):
        assert join_encryption(one, other) == MemoryEncryption()
    assert dict(both.capacity) == {"sev": 410, "sev_es": 99, "tdx": 31}
    [sentence] = encryption_differences(encryption(reading(SNP)), kernel)
    assert sentence.startswith("libvirt reports guests with SEV-SNP")


def test_what_kvm_has_and_libvirt_cannot_start_is_a_difference() -> None:
    sentences = list(
        encryption_differences(MemoryEncryption(), replace(KVM_AMD, amd_sev_snp=False))
    )
    assert [text.partition(" switched")[0] for text in sentences] == [
        "KVM has SEV",
        "KVM has SEV-ES",
    ]
