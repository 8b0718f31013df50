"""Traits COMPUTE_* of a host with libvirt: what guests on it can have.

What libvirt does not report is not named, so that its trait stays as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from msgspec import Struct
from oslo_log import log

from compute_agent import errors
from compute_agent.discovery.libvirt.facts import DomainCapabilities, HypervisorReading
from compute_agent.virt.traits import standard_traits, usable

OLDEST_LIBVIRT: Final = (8, 0, 0)
OLDEST_QEMU: Final = (6, 2, 0)

TEST: Final = "TEST"
"""libvirt's test driver, which has no QEMU and the version of the library."""

LOG = log.getLogger(__name__)
_SECRETS: Final = "COMPUTE_SECURITY_TPM_SECRET_SECURITY_"
_EMULATED_VIFS: Final = (
    *("virtio", "ne2k_pci", "pcnet", "rtl8139", "e1000", "e1000e", "spapr_vlan", "vmxnet3"),
)
VIF_MODELS: Final[Mapping[str, tuple[str, ...]]] = {
    "kvm": _EMULATED_VIFS,
    "qemu": (*_EMULATED_VIFS, "lan9118"),
    "parallels": ("virtio", "rtl8139", "e1000"),
    "lxc": (),
}
"""Models of network cards, by kind of guests."""
VIOMMU_ARCHS: Final = {"intel": "x86_64", "smmuv3": "aarch64"}
SOUND_MODELS: Final = ("SB16", "ES1370", "PCSPK", "AC97", "ICH6", "ICH9", "USB")
TPM_MODELS: Final = {"tpm-tis": "TIS", "tpm-crb": "CRB"}
TPM_VERSIONS: Final = {"1.2": "1_2", "2.0": "2_0"}
_TPM: Final = "COMPUTE_SECURITY_TPM_"
EMULATED_TPM: Final = "emulator"
IGB: Final = ((9, 3, 0), (8, 0, 0))
VIRTIO_SOUND: Final = ((10, 4, 0), (8, 2, 0))
VIRTIO_IOMMU: Final = ((8, 3, 0), (0, 0, 0))
STATELESS_FIRMWARE: Final = ((8, 6, 0), (0, 0, 0))
ADDRESS_SPACE: Final = ((8, 7, 0), (0, 0, 0))
"""Oldest libvirt and QEMU with a feature that no document of libvirt's names."""


def version(number: int) -> tuple[int, int, int]:
    """Return a version that libvirt packs into one number.

    >>> version(7002022)
    (7, 2, 22)
    """
    return number // 1_000_000, number // 1_000 % 1_000, number % 1_000


def check_versions(reading: HypervisorReading) -> None:
    """Check the versions of libvirt and, where it is the hypervisor, of QEMU.

    :raises InvalidConfiguration: one is too old.
    """
    if reading.hypervisor == TEST:
        return
    installed_versions = [("libvirt", version(reading.libvirt_version), OLDEST_LIBVIRT)]
    if reading.hypervisor == "QEMU":
        installed_versions.append(("QEMU", version(reading.hypervisor_version), OLDEST_QEMU))
    faults = [
        f"{name} {_version_text(actual)} is older than {_version_text(oldest)}"
        for name, actual, oldest in installed_versions
        if actual < oldest
    ]
    if faults:
        raise errors.InvalidConfiguration(
            f"The hypervisor at {reading.hostname} is too old for libvirt.LibvirtDriver: "
            f"{' and '.join(faults)}. Update it, or set [DEFAULT]compute_driver to "
            "host.HostDriver, which needs no hypervisor."
        )


def _version_text(numbers: tuple[int, int, int]) -> str:
    return ".".join(map(str, numbers))


class TraitOptions(Struct, frozen=True):
    """Options that decide about traits.

    :ivar tpm: guests can have emulated TPMs.
    :ivar tpm_secrets: ways to keep their secrets: user, host, deployment.
    """

    virt_type: str = "kvm"
    tpm: bool = False
    tpm_secrets: tuple[str, ...] = ()
    images_type: str = "default"
    file_backed_memory: bool = False


def host_traits(reading: HypervisorReading, options: TraitOptions) -> dict[str, bool]:
    """Return each trait that libvirt's facts decide, and whether the host has it, by name."""
    domains = reading.domain_capabilities
    archs = _archs(reading)
    vifs, sounds, viommus = list(VIF_MODELS[options.virt_type]), list(SOUND_MODELS), ["auto"]
    if options.virt_type in ("kvm", "qemu") and _has(reading, IGB):
        vifs.append("igb")
    if _has(reading, VIRTIO_SOUND):
        sounds.append("virtio")
    if _has(reading, VIRTIO_IOMMU):
        viommus.append("virtio")
    viommus += [model for model, arch in VIOMMU_ARCHS.items() if arch in archs]
    traits = {
        **_of("COMPUTE_NET_VIF_MODEL_", vifs),
        **_of("COMPUTE_VIOMMU_MODEL_", viommus),
        **_of("COMPUTE_SOUND_MODEL_", sounds),
        **_tpm(domains, options),
        "COMPUTE_NET_VIRTIO_PACKED": True,
    }
    if domains:
        traits |= _of("COMPUTE_ARCH_", (domain.arch for domain in domains))
        traits |= _of("COMPUTE_STORAGE_BUS_", _union(domain.disk_buses for domain in domains))
        traits |= _of("COMPUTE_GRAPHICS_MODEL_", _union(domain.video_models for domain in domains))
        traits |= _firmwares(domains)
    return {trait: traits[trait] for trait in sorted(usable(traits))}


def capabilities(reading: HypervisorReading, options: TraitOptions) -> dict[str, bool]:
    """Return the capabilities that are known of the hypervisor, by the names of drivers."""
    if options.virt_type not in ("kvm", "qemu"):
        return {
            "supports_attach_interface": True,
            "supports_image_type_raw": True,
            "supports_image_type_ploop": options.virt_type == "parallels",
        }
    addresses = _has(reading, ADDRESS_SPACE) and "x86_64" in _archs(reading)
    known_facts = {
        "supports_attach_interface": True,
        "supports_device_tagging": True,
        "supports_tagged_attach_interface": True,
        "supports_tagged_attach_volume": True,
        "supports_extend_volume": True,
        "supports_multiattach": True,
        "supports_trusted_certs": True,
        "supports_accelerators": True,
        "supports_bfv_rescue": True,
        "supports_socket_pci_numa_affinity": True,
        "supports_remote_managed_ports": True,
        "supports_address_space_passthrough": addresses,
        "supports_address_space_emulated": addresses,
        "supports_stateless_firmware": _has(reading, STATELESS_FIRMWARE),
        "supports_mem_backing_file": options.file_backed_memory,
        "supports_image_type_qcow2": options.images_type not in ("lvm", "rbd"),
        "supports_image_type_ploop": False,
        **{f"supports_image_type_{kind}": True for kind in ("aki", "ami", "ari", "iso", "raw")},
    }
    domains = reading.domain_capabilities
    if domains:
        known_facts["supports_secure_boot"] = any(domain.secure_boot for domain in domains)
        known_facts["supports_virtio_fs"] = "virtiofs" in _union(d.filesystems for d in domains)
    return known_facts


def check_tpm(reading: HypervisorReading, options: TraitOptions) -> None:
    """Warn where guests shall have emulated TPMs, and libvirt does not find the programs."""
    domains = reading.domain_capabilities
    if options.tpm and domains and not any(EMULATED_TPM in d.tpm_backends for d in domains):
        LOG.warning(
            "[libvirt]swtpm_enabled is set, and libvirt cannot emulate TPMs on %s: no trait of "
            "one is reported. Install swtpm and swtpm-tools there and restart libvirtd (or "
            "virtqemud), or set swtpm_enabled to False.",
            reading.hostname,
        )


def _tpm(domains: Collection[DomainCapabilities], options: TraitOptions) -> dict[str, bool]:
    secrets = _of(_SECRETS, options.tpm_secrets if options.tpm else ())
    names = (*TPM_MODELS.values(), *TPM_VERSIONS.values())
    if not options.tpm:
        return secrets | {f"{_TPM}{name}": False for name in names}
    if not domains:
        return secrets
    emulating = [domain for domain in domains if EMULATED_TPM in domain.tpm_backends]
    models = _union(domain.tpm_models for domain in emulating)
    versions = _union(domain.tpm_versions for domain in emulating)
    traits = secrets | {f"{_TPM}{name}": model in models for model, name in TPM_MODELS.items()}
    if emulating and not versions:  # libvirt before 8.6 names none, and emulates both
        versions = frozenset(TPM_VERSIONS)
    return traits | {f"{_TPM}{name}": number in versions for number, name in TPM_VERSIONS.items()}


def _firmwares(domains: Iterable[DomainCapabilities]) -> dict[str, bool]:
    """Return the traits of firmware; an x86 emulator brings the BIOS with it."""
    firmwares = _union(domain.firmwares for domain in domains)
    bios = "bios" in firmwares or any(domain.arch in ("x86_64", "i686") for domain in domains)
    return {"COMPUTE_FIRMWARE_BIOS": bios, "COMPUTE_FIRMWARE_UEFI": "efi" in firmwares}


def _of(prefix: str, names: Iterable[str]) -> dict[str, bool]:
    """Return all standard traits with this prefix, and whether they are among the names."""
    present = {f"{prefix}{name.upper()}" for name in names}
    return {t: t in present for t in {*standard_traits(), *present} if t.startswith(prefix)}


def _archs(reading: HypervisorReading) -> frozenset[str]:
    return frozenset(emulator.arch for emulator in reading.capabilities.emulators)


def _union(names: Iterable[Iterable[str]]) -> frozenset[str]:
    return frozenset(name for group in names for name in group)


def _has(
    reading: HypervisorReading, oldest: tuple[tuple[int, int, int], tuple[int, int, int]]
) -> bool:
    libvirt, qemu = oldest
    return (
        version(reading.libvirt_version) >= libvirt and version(reading.hypervisor_version) >= qemu
    )
