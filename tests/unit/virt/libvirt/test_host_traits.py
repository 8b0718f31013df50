"""Traits of a host by what libvirt reports that guests can have; versions that are too old."""

from __future__ import annotations

import pytest

from compute_agent import errors
from compute_agent.virt.libvirt.host_traits import (
    TraitOptions,
    capabilities,
    check_tpm,
    check_versions,
    host_traits,
)
from compute_agent.virt.traits import standard_traits
from tests.fixtures.libvirt_documents import (
    AARCH64_CAPABILITIES,
    I440FX_DOMAIN_CAPABILITIES,
    LXC_CAPABILITIES,
    Q35_DOMAIN_CAPABILITIES,
)

from .readings import hypervisor

BOTH = (I440FX_DOMAIN_CAPABILITIES, Q35_DOMAIN_CAPABILITIES)
KVM = TraitOptions("kvm")


def present(traits: dict[str, bool], prefix: str) -> set[str]:
    return {t.removeprefix(prefix) for t, has in traits.items() if has and t.startswith(prefix)}


def named(traits: dict[str, bool], prefix: str) -> set[str]:
    return {trait for trait in traits if trait.startswith(prefix)}


def test_buses_and_graphics_are_those_of_all_machine_types_together() -> None:
    traits = host_traits(hypervisor(*BOTH), KVM)
    buses = present(traits, "COMPUTE_STORAGE_BUS_")
    assert buses == {"FDC", "IDE", "SATA", "SCSI", "USB", "VIRTIO"}
    assert present(traits, "COMPUTE_GRAPHICS_MODEL_") == {"CIRRUS", "NONE", "VGA", "VIRTIO"}
    assert traits["COMPUTE_STORAGE_BUS_XEN"] is False
    assert traits["COMPUTE_GRAPHICS_MODEL_QXL"] is False


def test_architectures_are_those_that_guests_are_described_for() -> None:
    foreign = Q35_DOMAIN_CAPABILITIES.replace("<arch>x86_64<", "<arch>aarch64<")
    traits = host_traits(hypervisor(foreign, *BOTH), KVM)
    assert present(traits, "COMPUTE_ARCH_") == {"AARCH64", "X86_64"}
    assert traits["COMPUTE_ARCH_S390X"] is False


def test_what_libvirt_does_not_report_is_not_named() -> None:
    traits = host_traits(hypervisor(), TraitOptions("kvm", tpm=True, tpm_secrets=("user",)))
    for prefix in ("COMPUTE_ARCH_", "COMPUTE_STORAGE_BUS_", "COMPUTE_GRAPHICS_MODEL_"):
        assert named(traits, prefix) == set()
    assert named(traits, "COMPUTE_FIRMWARE_") == set()
    assert present(traits, "COMPUTE_SECURITY_TPM_") == {"SECRET_SECURITY_USER"}
    assert "COMPUTE_SECURITY_TPM_TIS" not in traits
    assert "supports_secure_boot" not in capabilities(hypervisor(), KVM)
    assert "supports_virtio_fs" not in capabilities(hypervisor(), KVM)


@pytest.mark.parametrize(
    ("virt_type", "libvirt", "qemu", "model", "expected"),
    [
        ("kvm", (9, 3, 0), (8, 0, 0), "IGB", True),
        ("kvm", (9, 2, 0), (8, 0, 0), "IGB", False),
        ("kvm", (9, 3, 0), (7, 2, 9), "IGB", False),
        ("kvm", (9, 0, 0), (7, 2, 0), "LAN9118", False),
        ("qemu", (9, 0, 0), (7, 2, 0), "LAN9118", True),
        ("qemu", (9, 0, 0), (7, 2, 0), "SPAPR_VLAN", True),
        ("lxc", (9, 3, 0), (8, 0, 0), "IGB", False),
        ("parallels", (9, 0, 0), (1, 0, 0), "E1000", True),
        ("parallels", (9, 0, 0), (1, 0, 0), "VMXNET3", False),
        ("lxc", (9, 0, 0), (1, 0, 0), "VIRTIO", False),
    ],
)
def test_models_of_network_cards_follow_the_kind_of_guests_and_the_versions(
    virt_type: str,
    libvirt: tuple[int, int, int],
    qemu: tuple[int, int, int],
    model: str,
    expected: bool,
) -> None:
    reading = hypervisor(libvirt=libvirt, qemu=qemu)
    traits = host_traits(reading, TraitOptions(virt_type))
    assert traits[f"COMPUTE_NET_VIF_MODEL_{model}"] is expected
    assert traits["COMPUTE_NET_VIRTIO_PACKED"] is True


def test_iommu_models_follow_the_emulators() -> None:
    prefix = "COMPUTE_VIOMMU_MODEL_"
    both = host_traits(hypervisor(), KVM)
    assert present(both, prefix) == {"AUTO", "INTEL", "SMMUV3", "VIRTIO"}
    arm = host_traits(hypervisor(host=AARCH64_CAPABILITIES, libvirt=(8, 2, 0)), KVM)
    assert present(arm, prefix) == {"AUTO", "SMMUV3"}
    assert arm[f"{prefix}INTEL"] is False


def test_sound_by_virtio_needs_new_versions() -> None:
    old = host_traits(hypervisor(libvirt=(10, 4, 0), qemu=(8, 1, 0)), KVM)
    new = host_traits(hypervisor(libvirt=(10, 4, 0), qemu=(8, 2, 0)), KVM)
    assert old["COMPUTE_SOUND_MODEL_VIRTIO"] is False
    assert new["COMPUTE_SOUND_MODEL_VIRTIO"] is True
    assert old["COMPUTE_SOUND_MODEL_ICH9"] is True


def test_emulated_tpms_are_reported_where_they_are_enabled() -> None:
    prefix = "COMPUTE_SECURITY_TPM_"
    enabled = TraitOptions("kvm", tpm=True, tpm_secrets=("user", "host"))
    traits = host_traits(hypervisor(*BOTH), enabled)
    assert present(traits, prefix) == {
        *("1_2", "2_0", "CRB", "TIS", "SECRET_SECURITY_HOST", "SECRET_SECURITY_USER"),
    }
    off = host_traits(hypervisor(*BOTH), TraitOptions("kvm", tpm_secrets=("user",)))
    assert present(off, prefix) == set()
    assert named(off, prefix) == named(traits, prefix)


def test_a_libvirt_that_names_no_versions_of_tpms_emulates_both() -> None:
    """Before 8.6 there is no `backendVersion`."""
    unnamed = Q35_DOMAIN_CAPABILITIES.replace("backendVersion", "backendFlavour")
    traits = host_traits(hypervisor(unnamed), TraitOptions("kvm", tpm=True))
    assert {"1_2", "2_0"} <= present(traits, "COMPUTE_SECURITY_TPM_")


def test_a_tpm_of_the_host_is_not_an_emulated_one(caplog: pytest.LogCaptureFixture) -> None:
    without_swtpm = Q35_DOMAIN_CAPABILITIES.replace("<value>emulator</value>", "")
    enabled = TraitOptions("kvm", tpm=True)
    assert not present(host_traits(hypervisor(without_swtpm), enabled), "COMPUTE_SECURITY_TPM_")
    check_tpm(hypervisor(without_swtpm), enabled)
    [record] = caplog.records
    assert "Install swtpm" in record.getMessage()
    check_tpm(hypervisor(*BOTH), enabled)
    check_tpm(hypervisor(without_swtpm), KVM)
    assert len(caplog.records) == 1


def test_firmware_and_shared_directories_are_what_libvirt_finds_programs_of() -> None:
    with_uefi = host_traits(hypervisor(*BOTH), KVM)
    without = host_traits(hypervisor(I440FX_DOMAIN_CAPABILITIES), KVM)
    assert present(with_uefi, "COMPUTE_FIRMWARE_") == {"BIOS", "UEFI"}
    assert present(without, "COMPUTE_FIRMWARE_") == {"BIOS"}
    both = capabilities(hypervisor(*BOTH), KVM)
    old = capabilities(hypervisor(I440FX_DOMAIN_CAPABILITIES), KVM)
    for name in ("supports_secure_boot", "supports_virtio_fs"):
        assert (both[name], old[name]) == (True, False)


def test_capabilities_that_depend_on_versions_and_options() -> None:
    old = capabilities(hypervisor(libvirt=(8, 5, 0)), KVM)
    new = capabilities(hypervisor(libvirt=(8, 7, 0)), TraitOptions("kvm", file_backed_memory=True))
    for name in (
        "supports_stateless_firmware",
        "supports_address_space_passthrough",
        "supports_address_space_emulated",
        "supports_mem_backing_file",
    ):
        assert (old[name], new[name]) == (False, True)
    rbd = capabilities(hypervisor(), TraitOptions("kvm", images_type="rbd"))
    assert {name.removeprefix("supports_") for name, has in new.items() if has != rbd[name]} == {
        *("mem_backing_file", "image_type_qcow2"),
    }
    always = {name.removeprefix("supports_") for name, has in old.items() if has}
    assert always == {
        *("attach_interface", "device_tagging", "tagged_attach_interface"),
        *("tagged_attach_volume", "extend_volume", "multiattach", "trusted_certs"),
        *("accelerators", "bfv_rescue", "socket_pci_numa_affinity", "remote_managed_ports"),
        *(f"image_type_{kind}" for kind in ("aki", "ami", "ari", "iso", "qcow2", "raw")),
    }


def test_containers_are_not_described_as_machines() -> None:
    reading = hypervisor(host=LXC_CAPABILITIES, kind="LXC")
    known = capabilities(reading, TraitOptions("lxc"))
    assert "supports_device_tagging" not in known
    assert known["supports_attach_interface"] is True


def test_every_trait_is_one_that_placement_knows() -> None:
    unknown_bus = Q35_DOMAIN_CAPABILITIES.replace("<value>sata</value>", "<value>nvme9</value>")
    traits = host_traits(hypervisor(unknown_bus), TraitOptions("qemu", tpm=True))
    assert traits.keys() <= standard_traits()
    assert list(traits) == sorted(traits)


@pytest.mark.parametrize(
    ("libvirt", "qemu", "fault"),
    [
        ((7, 10, 0), (6, 2, 0), r"libvirt 7\.10\.0 is older than 8\.0\.0\."),
        ((8, 0, 0), (6, 1, 1), r"QEMU 6\.1\.1 is older than 6\.2\.0\."),
        ((7, 0, 0), (5, 2, 0), r"libvirt 7\.0\.0 .* and QEMU 5\.2\.0"),
    ],
)
def test_an_old_hypervisor_is_refused_with_both_versions(
    libvirt: tuple[int, int, int], qemu: tuple[int, int, int], fault: str
) -> None:
    with pytest.raises(errors.InvalidConfiguration, match=fault):
        check_versions(hypervisor(libvirt=libvirt, qemu=qemu))


def test_the_oldest_versions_are_new_enough_and_only_qemu_has_one_of_qemu() -> None:
    check_versions(hypervisor(libvirt=(8, 0, 0), qemu=(6, 2, 0)))
    check_versions(hypervisor(kind="LXC", libvirt=(8, 0, 0), qemu=(5, 0, 0)))
    check_versions(hypervisor(kind="TEST", libvirt=(1, 0, 0), qemu=(0, 0, 2)))
