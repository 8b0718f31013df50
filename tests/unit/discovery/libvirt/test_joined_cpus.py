"""The CPU that guests get and their encryption, of libvirt's facts and those of the kernel."""

from __future__ import annotations

from dataclasses import replace

from compute_agent.discovery.facts import CpuId, CpuModel, HostTopology, MemoryEncryption
from compute_agent.discovery.libvirt import guest_abilities, source
from compute_agent.discovery.libvirt.facts import HypervisorReading
from compute_agent.discovery.libvirt.join import join
from tests.fixtures.libvirt_documents import SEV_DOMAIN_CAPABILITIES, X86_CAPABILITIES

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


def test_guests_have_the_features_that_libvirt_gives_them() -> None:
    model = join(READING, KERNEL).cpu_model
    name = "Skylake-Server-IBRS"
    assert model == KERNEL.cpu_model._replace(guest_features=("aes",), libvirt_model=name)
    elsewhere = join(READING, None).cpu_model
    assert elsewhere == CpuModel("x86_64", "Intel", name, (), ("aes",), libvirt_model=name)


def test_the_flags_of_the_host_do_not_stand_for_features_that_are_unknown() -> None:
    model = join(replace(READING, guest_features=None), KERNEL).cpu_model
    assert (model.flags, model.guest_features) == ((), None)


def test_containers_get_the_cpu_of_the_host() -> None:
    containers = replace(READING, hypervisor="LXC", guest_features=None)
    assert join(containers, KERNEL).cpu_model == KERNEL.cpu_model


def test_encryption_is_joined_and_a_difference_is_a_warning() -> None:
    encrypting = replace(
        READING,
        domain_capabilities=(guest_abilities.parse_domain_capabilities(SEV_DOMAIN_CAPABILITIES),),
    )
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
