"""Mediated devices and their types, and the vGPUs of the vendor's own VFIO driver.

Two interfaces give the same facts:

    bus/pci/devices/<addr>/mdev_supported_types/nvidia-35/available_instances
    bus/mdev/devices/<uuid> -> ../../../devices/pci.../<addr>/<uuid>
    bus/mdev/devices/<uuid>/mdev_type -> .../nvidia-35

    bus/pci/devices/<VF>/nvidia/{creatable_vgpu_types,current_vgpu_type}      newer kernels, no mdev

Source: Documentation/driver-api/vfio-mediated-device.rst, NVIDIA's vGPU user guide.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from compute_agent.discovery.errors import DiscoveryError
from compute_agent.discovery.facts import Mdev, MdevType, PciAddress, pci_address
from compute_agent.discovery.sysfs.pci import PciFunction
from compute_agent.discovery.sysfs.reader import Machine

SUPPORTED_TYPES = "mdev_supported_types"
AVAILABLE = "available_instances"
MDEVS = "bus/mdev/devices"
MDEV_TYPE = "mdev_type"
VENDOR_VFIO = "nvidia"
CREATABLE = f"{VENDOR_VFIO}/creatable_vgpu_types"
CURRENT = f"{VENDOR_VFIO}/current_vgpu_type"
VENDOR_PREFIX = "nvidia-"  # the mdev framework calls the vendor's type 35 `nvidia-35`

_CREATABLE_LINE = re.compile(r"\s*(\d+)\s*(?::.*)?")

Mdevs = Mapping[PciAddress, tuple[Mdev, ...]]


def existing_mdevs(machine: Machine) -> Mdevs:
    """Read the mediated devices of PCI functions, by parent, each parent's by uuid.

    Parents that are not PCI functions (samples of the kernel, crypto cards of s390) are left out.
    """
    by_parent: dict[PciAddress, list[Mdev]] = {}
    for uuid in machine.sys.names(MDEVS):
        target = machine.sys.link(f"{MDEVS}/{uuid}")
        type_id = machine.sys.link_name(f"{MDEVS}/{uuid}/{MDEV_TYPE}")
        if target is None or type_id is None:
            machine.warn(
                f"{machine.sys.path(MDEVS)}/{uuid} has no parent or no {MDEV_TYPE}: mediated"
                " device left out"
            )
            continue
        try:
            parent = pci_address(target.split("/")[-2])
        except (ValueError, IndexError):
            continue
        by_parent.setdefault(parent, []).append(Mdev(type_id, uuid))
    return {parent: tuple(mdevs) for parent, mdevs in by_parent.items()}


def types(machine: Machine, function: PciFunction) -> tuple[MdevType, ...]:
    """Return the types that a function offers, by id; one that cannot be read is left out."""
    if SUPPORTED_TYPES not in function.entries:
        return ()
    tree, here = machine.sys, f"{function.directory}/{SUPPORTED_TYPES}"
    offered_types = []
    for type_id in tree.names(here):
        try:
            available = tree.count(f"{here}/{type_id}/{AVAILABLE}")
        except DiscoveryError as error:
            machine.warn(f"{error}; mdev type {type_id} of {function.device.address} left out")
            continue
        offered_types.append(MdevType(type_id, available))
    return tuple(offered_types)


def vendor_types(
    machine: Machine, function: PciFunction
) -> tuple[tuple[MdevType, ...], tuple[Mdev, ...]]:
    """Read what the vendor's VFIO driver offers on a VF, and the vGPU that the VF is, if any.

    A VF is one vGPU at most: until then it has one instance of each creatable type.
    """
    tree, here = machine.sys, function.directory
    current = tree.optional_integer(f"{here}/{CURRENT}") or 0
    text = tree.optional_text(f"{here}/{CREATABLE}") or ""
    free = 0 if current else 1
    lines = map(_CREATABLE_LINE.fullmatch, text.splitlines())
    numbers = sorted({int(line[1]) for line in lines if line})
    creatable = tuple(MdevType(f"{VENDOR_PREFIX}{number}", free) for number in numbers)
    vgpus = (Mdev(f"{VENDOR_PREFIX}{current}", None),) if current else ()
    return creatable, vgpus
