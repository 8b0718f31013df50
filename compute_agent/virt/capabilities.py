"""Capabilities of a hypervisor, as traits of the root provider."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from typing import Final

from compute_agent.virt.cpu_traits import usable

IMAGE_TYPES: Final = (
    "aki",
    "ami",
    "ari",
    "iso",
    "qcow2",
    "raw",
    "vdi",
    "vhd",
    "vhdx",
    "vmdk",
    "ploop",
)
_IMAGE_PREFIX: Final = "supports_image_type_"

REMOTE_MANAGED_PORTS: Final = "COMPUTE_REMOTE_MANAGED_PORTS"

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


@functools.cache
def _known_traits() -> frozenset[str]:
    return usable(CAPABILITY_TRAITS.values())


def capability_traits(
    capabilities: Mapping[str, bool], excluded_image_types: Collection[str] = ()
) -> dict[str, bool]:
    """Return each trait that the driver has a word on and whether it applies, sorted by name.

    A capability that the driver does not mention is not its own to deny: another service, or the
    agent that reported the host before, may have announced it.

    :param excluded_image_types: that are not announced, whatever the driver can do.
    """
    known_traits = _known_traits()
    traits = {}
    for capability, trait in CAPABILITY_TRAITS.items():
        is_excluded = capability.removeprefix(_IMAGE_PREFIX) in excluded_image_types
        if trait in known_traits and (is_excluded or capability in capabilities):
            traits[trait] = not is_excluded and bool(capabilities[capability])
    return dict(sorted(traits.items()))
