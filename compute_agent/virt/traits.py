"""Traits of CPUs, architectures and capabilities, from the names of kernel, libvirt and drivers.

Sources: Linux arch/x86/include/asm/cpufeatures.h (names in `flags` of /proc/cpuinfo) and
arch/arm64/kernel/cpuinfo.c (names in `Features`); libvirt src/cpu_map/x86_features.xml. On arm
libvirt has the kernel's names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import Final

import os_traits
from oslo_log import log

from compute_agent.discovery.facts import CpuModel
from compute_agent.provider_tree.trait_names import HW_CPU_HYPERTHREADING

LOG = log.getLogger(__name__)

_X86_PREFIX: Final = "HW_CPU_X86_"

X86: Final = ("x86_64", "i686")
AARCH64: Final = "aarch64"
_WITH_FEATURES: Final = (*X86, AARCH64)
"""Architectures whose every CPU has features with names."""

# fmt: off
_SAME_NAMES: Final = (
    "3dnow", "abm", "amx_bf16", "amx_int8", "amx_tile", "avx", "avx2", "avx512_bitalg",
    "avx512_vbmi2", "avx512_vnni", "avx512_vpopcntdq", "avx512bw", "avx512cd", "avx512dq",
    "avx512er", "avx512f", "avx512ifma", "avx512pf", "avx512vbmi", "avx512vl", "bmi2", "f16c",
    "fma4", "mmx", "mpx", "pdpe1gb", "sgx", "sse", "sse2", "sse4_1", "sse4_2", "sse4a", "ssse3",
    "stibp", "tbm", "xop",
)
# fmt: on
"""Flags whose traits have their names, in upper case and without `_`."""

X86_FLAGS: Final[Mapping[str, tuple[str, ...]]] = {
    **{flag: (flag.replace("_", "").upper(),) for flag in _SAME_NAMES},
    "aes": ("AESNI",),
    "bmi1": ("BMI",),
    "fma": ("FMA3",),
    "gfni": ("AVX512GFNI",),
    "ibpb": ("AMD_IBPB",),
    "md_clear": ("INTEL_MD_CLEAR",),
    "pcid": ("INTEL_PCID",),
    "pclmulqdq": ("CLMUL",),
    "pni": ("SSE3",),
    "sha_ni": ("SHA",),
    "svm": ("SVM", "AMD_SVM"),
    "vaes": ("AVX512VAES",),
    "virt_ssbd": ("AMD_VIRT_SSBD",),
    "vmx": ("VMX", "INTEL_VMX"),
    "vpclmulqdq": ("AVX512VPCLMULQDQ",),
}
"""Flags that mean the same on CPUs of every vendor."""

X86_VENDOR_FLAGS: Final[Mapping[str, Mapping[str, str]]] = {
    "GenuineIntel": {"ibrs": "INTEL_SPEC_CTRL", "ssbd": "INTEL_SSBD"},
    "AuthenticAMD": {"ssbd": "AMD_SSBD", "amd_ssb_no": "AMD_NO_SSB"},
}
"""The kernel folds Intel's and AMD's bits for one mitigation into one flag; the traits do not."""

X86_LIBVIRT_NAMES: Final[Mapping[str, str]] = {
    "amx_bf16": "amx-bf16",
    "amx_int8": "amx-int8",
    "amx_tile": "amx-tile",
    "avx512_bitalg": "avx512bitalg",
    "avx512_vbmi2": "avx512vbmi2",
    "avx512_vnni": "avx512vnni",
    "avx512_vpopcntdq": "avx512-vpopcntdq",
    "md_clear": "md-clear",
    "pclmulqdq": "pclmuldq",
    "sha_ni": "sha-ni",
    "sse4_1": "sse4.1",
    "sse4_2": "sse4.2",
    "virt_ssbd": "virt-ssbd",
}
"""The kernel's name of a flag -> libvirt's, where they differ."""

X86_FEATURES: Final[Mapping[str, tuple[str, ...]]] = {
    **{X86_LIBVIRT_NAMES.get(flag, flag): names for flag, names in X86_FLAGS.items()},
    "amd-no-ssb": ("AMD_NO_SSB",),
    "amd-ssbd": ("AMD_SSBD",),
    "spec-ctrl": ("INTEL_SPEC_CTRL",),
    "ssbd": ("INTEL_SSBD",),
}
"""libvirt's features. Each is a bit of one vendor's CPUs, so the vendor is not asked for."""

# fmt: off
AARCH64_FEATURES: Final = frozenset((
    "fp", "asimd", "evtstrm", "aes", "pmull", "sha1", "sha2", "crc32", "atomics", "fphp",
    "asimdhp", "cpuid", "asimdrdm", "jscvt", "fcma", "lrcpc", "dcpop", "sha3", "sm3", "sm4",
    "asimddp", "sha512", "sve",
))
# fmt: on

IMAGE_TYPES: Final = (
    *("aki", "ami", "ari", "iso", "qcow2", "raw", "vdi", "vhd", "vhdx", "vmdk", "ploop"),
)
_IMAGE_PREFIX: Final = "supports_image_type_"
REMOTE_MANAGED_PORTS: Final = "COMPUTE_REMOTE_MANAGED_PORTS"


@cache
def standard_traits() -> frozenset[str]:
    """Return the names of all standard traits of the installed os-traits."""
    return frozenset(os_traits.get_traits())


def usable(traits: Iterable[str]) -> frozenset[str]:
    """Return the traits that placement can know: standard ones and CUSTOM_ ones.

    One refused name fails all the traits of a provider, so others are dropped with a DEBUG line.
    """
    known_traits = frozenset(t for t in traits if t.startswith("CUSTOM_") or t in standard_traits())
    for trait in sorted(frozenset(traits) - known_traits):
        LOG.debug("Trait %s is not a standard trait of the installed os-traits: left out", trait)
    return known_traits


def cpu_traits(model: CpuModel, *, hyperthreading: bool) -> dict[str, bool]:
    """Return for every CPU trait this module knows whether guests' CPUs have it.

    Traits of other architectures are False, so that nothing is left over from another machine.
    Where the features of an x86 or arm CPU are unknown, no trait of them is named.
    """
    present = {HW_CPU_HYPERTHREADING} if hyperthreading else set()
    has_guest_features = model.guest_features is not None
    features = frozenset(model.guest_features or () if has_guest_features else model.flags)
    if model.arch in _WITH_FEATURES and not has_guest_features and not features:
        return {HW_CPU_HYPERTHREADING: hyperthreading}
    if model.arch in X86:
        names = X86_FEATURES if has_guest_features else X86_FLAGS
        x86 = {name for feature in features & names.keys() for name in names[feature]}
        if {"hle", "rtm"} <= features:
            x86.add("TSX")
        if not has_guest_features:
            by_vendor = X86_VENDOR_FLAGS.get(model.vendor or "", {})
            x86.update(by_vendor[flag] for flag in features & by_vendor.keys())
        present.update(_X86_PREFIX + name for name in x86)
    elif model.arch == AARCH64:
        present.update(_aarch64_trait(name) for name in AARCH64_FEATURES & features)
    return {trait: trait in present for trait in sorted(known_cpu_traits())}


def arch_traits(arch: str) -> dict[str, bool]:
    """Return for every standard HW_ARCH_ trait whether it is this architecture's."""
    arch_trait = f"HW_ARCH_{arch.upper()}"
    if arch_trait not in standard_traits():
        LOG.debug("There is no standard trait for architecture %s", arch)
    return {t: t == arch_trait for t in sorted(standard_traits()) if t.startswith("HW_ARCH_")}


@cache
def known_cpu_traits() -> frozenset[str]:
    """Return all traits of CPUs that this module may report."""
    x86 = {name for names in X86_FLAGS.values() for name in names} | {"TSX"}
    x86.update(name for names in X86_VENDOR_FLAGS.values() for name in names.values())
    known_traits = {_X86_PREFIX + name for name in x86} | {HW_CPU_HYPERTHREADING}
    known_traits.update(_aarch64_trait(name) for name in AARCH64_FEATURES)
    return usable(known_traits)


def _aarch64_trait(feature: str) -> str:
    return f"HW_CPU_AARCH64_{feature.upper()}"


CAPABILITY_TRAITS: Final[Mapping[str, str]] = {
    "supports_attach_interface": "COMPUTE_NET_ATTACH_INTERFACE",
    "supports_device_tagging": "COMPUTE_DEVICE_TAGGING",
    "supports_tagged_attach_interface": "COMPUTE_NET_ATTACH_INTERFACE_WITH_TAG",
    "supports_tagged_attach_volume": "COMPUTE_VOLUME_ATTACH_WITH_TAG",
    "supports_extend_volume": "COMPUTE_VOLUME_EXTEND",
    "supports_multiattach": "COMPUTE_VOLUME_MULTI_ATTACH",
    "supports_trusted_certs": "COMPUTE_TRUSTED_CERTS",
    "supports_accelerators": "COMPUTE_ACCELERATORS",
    "supports_migrate_to_same_host": "COMPUTE_SAME_HOST_COLD_MIGRATE",
    "supports_bfv_rescue": "COMPUTE_RESCUE_BFV",
    "supports_secure_boot": "COMPUTE_SECURITY_UEFI_SECURE_BOOT",
    "supports_socket_pci_numa_affinity": "COMPUTE_SOCKET_PCI_NUMA_AFFINITY",
    "supports_remote_managed_ports": REMOTE_MANAGED_PORTS,
    "supports_ephemeral_encryption": "COMPUTE_EPHEMERAL_ENCRYPTION",
    "supports_ephemeral_encryption_luks": "COMPUTE_EPHEMERAL_ENCRYPTION_LUKS",
    "supports_ephemeral_encryption_plain": "COMPUTE_EPHEMERAL_ENCRYPTION_PLAIN",
    "supports_address_space_passthrough": "COMPUTE_ADDRESS_SPACE_PASSTHROUGH",
    "supports_address_space_emulated": "COMPUTE_ADDRESS_SPACE_EMULATED",
    "supports_stateless_firmware": "COMPUTE_SECURITY_STATELESS_FIRMWARE",
    "supports_virtio_fs": "COMPUTE_STORAGE_VIRTIO_FS",
    "supports_mem_backing_file": "COMPUTE_MEM_BACKING_FILE",
    **{f"{_IMAGE_PREFIX}{name}": f"COMPUTE_IMAGE_TYPE_{name.upper()}" for name in IMAGE_TYPES},
}


@cache
def _known_capability_traits() -> frozenset[str]:
    return usable(CAPABILITY_TRAITS.values())


def capability_traits(
    capabilities: Mapping[str, bool], excluded_image_types: Collection[str] = ()
) -> dict[str, bool]:
    """Return each trait that the driver has a word on and whether it applies, sorted by name.

    A capability that the driver does not mention is not its own to deny: another service, or the
    agent that reported the host before, may have announced it.

    :param excluded_image_types: that are not announced, whatever the driver can do.
    """
    known_traits = _known_capability_traits()
    traits = {}
    for capability, trait in CAPABILITY_TRAITS.items():
        is_excluded = capability.removeprefix(_IMAGE_PREFIX) in excluded_image_types
        if trait in known_traits and (is_excluded or capability in capabilities):
            traits[trait] = not is_excluded and bool(capabilities[capability])
    return dict(sorted(traits.items()))
