"""GPUs by PCI class, and whatever else makes mediated devices (mdevs).

Two interfaces show the vGPUs of a function, and what more it can make:

    bus/pci/devices/<addr>/mdev_supported_types/nvidia-35/available_instances
    bus/mdev/devices/<uuid> -> ../../../devices/pci.../<addr>/<uuid>
    bus/mdev/devices/<uuid>/mdev_type -> .../nvidia-35

    bus/pci/devices/<VF>/nvidia/{creatable_vgpu_types,current_vgpu_type}      newer kernels, no mdev

Source: Documentation/driver-api/vfio-mediated-device.rst, NVIDIA's vGPU user guide.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from compute_agent.discovery.errors import DiscoveryError
from compute_agent.discovery.facts import (
    GpuVf,
    Mdev,
    MdevType,
    PciAddress,
    PciDevice,
    PhysicalGpu,
)
from compute_agent.discovery.pci_address import pci_address
from compute_agent.discovery.sysfs.pci import PciFunction, PciFunctions
from compute_agent.discovery.sysfs.reader import Machine
from compute_agent.discovery.sysfs.vpd import identity

SUPPORTED_TYPES = "mdev_supported_types"
AVAILABLE = "available_instances"
MDEVS = "bus/mdev/devices"
MDEV_TYPE = "mdev_type"
VENDOR_VFIO = "nvidia"
CREATABLE = f"{VENDOR_VFIO}/creatable_vgpu_types"
CURRENT = f"{VENDOR_VFIO}/current_vgpu_type"
VENDOR_PREFIX = "nvidia-"  # the mdev framework calls the vendor's type 35 `nvidia-35`

_CREATABLE_LINE = re.compile(r"\s*(\d+)\s*(?::.*)?")

_Mdevs = Mapping[PciAddress, tuple[Mdev, ...]]

DISPLAY_CLASSES = ("0300", "0302", "0380")  # VGA, 3D, other display controller
ACCELERATOR_CLASS = "1200"
GPU_ACCELERATORS = frozenset({"1002"})
"""Vendors whose processing accelerators are GPUs: AMD's, from Instinct MI200 on. Those of others
are FPGAs (Intel, Xilinx), processors for neural networks (Intel, Habana) or test devices (QEMU);
guests get them by [pci]device_spec. Intel's data centre GPUs are display controllers."""

# in the directory of a function, by AMD's driver amdgpu
MODEL = "product_name"
UNIQUE_ID = "unique_id"
SERIAL_NUMBER = "serial_number"
MEMORY = "mem_info_vram_total"
HIVE = "xgmi_hive_info"
HIVE_ID = f"{HIVE}/xgmi_hive_id"
# by Intel's driver xe, for each tile
TILE_MEMORY = "physical_vram_size_bytes"

_TILE = re.compile(r"tile\d+")
_MIB = 1 << 20

SCREENS = frozenset(
    {
        "1a03",  # ASPEED, the screen of a management controller
        "102b",  # Matrox, likewise
        "18ca",  # XGI, likewise
        "126f",  # Silicon Motion, likewise
        "19e5:1711",  # Huawei iBMC; other functions of the vendor are accelerators
        *("1002:4752", "1002:515e", "1002:5969"),  # ATI Rage XL and ES1000 on servers' boards
        *("0014:7a06", "0014:7a36"),  # Loongson's bridges
        "1db7:dc3e",  # Phytium, likewise
        "1013",  # Cirrus Logic, emulated
        "1234",  # Bochs and QEMU's standard VGA
        "1414",  # Hyper-V
        "15ad",  # VMware
        "1ab8",  # Parallels
        "1af4",  # virtio-gpu
        "1b36",  # QXL
        "1d0f:1111",  # Amazon EC2
        "5853",  # Xen
        "80ee",  # VirtualBox
    }
)
"""Display controllers that are no GPUs for guests: vendors, and single models as vendor:product.

Source: pci.ids (https://pci-ids.ucw.cz), and the drivers ast, mgag200, hibmc, sm750, loongson and
radeon of Linux, of which the last has a list of server boards."""


def discover(machine: Machine, functions: PciFunctions) -> tuple[PhysicalGpu, ...]:
    """Every GPU and other maker of mediated devices, by address; VFs are with their PF.

    A VF without its PF stands for itself.
    """
    mdevs = _mdevs(machine)
    return tuple(
        _gpu(machine, function, functions, mdevs)
        for function in functions.values()
        if function.device.physfn not in functions
        and (is_gpu(function.device) or _makes_mdevs(function, functions))
    )


def is_gpu(device: PciDevice) -> bool:
    """Whether a function is a GPU, or a VF of one, by its class and model."""
    if device.class_code.startswith(ACCELERATOR_CLASS):
        return device.vendor_id in GPU_ACCELERATORS
    model = f"{device.vendor_id}:{device.product_id}"
    is_screen = bool(SCREENS & {device.vendor_id, model})
    return device.class_code.startswith(DISPLAY_CLASSES) and not is_screen


def _makes_mdevs(function: PciFunction, functions: PciFunctions) -> bool:
    family = (function, *(functions[address] for address in function.device.vfs))
    return any(SUPPORTED_TYPES in member.entries for member in family)


def _gpu(
    machine: Machine, function: PciFunction, functions: PciFunctions, mdevs: _Mdevs
) -> PhysicalGpu:
    device = function.device
    return PhysicalGpu(
        address=device.address,
        vendor_id=device.vendor_id,
        product_id=device.product_id,
        numa_node=device.numa_node,
        vfs=tuple(
            _vf(machine, index, functions[address], mdevs)
            for index, address in zip(function.vf_numbers, device.vfs, strict=True)
        ),
        mdev_types=_mdev_types(machine, function),
        mdevs=mdevs.get(device.address, ()),
        **_shown_by_driver(machine, function),
    )


def _shown_by_driver(machine: Machine, function: PciFunction) -> dict[str, Any]:
    """Return what drivers of AMD and Intel show; NVIDIA's shows nothing here."""
    tree, here, entries = machine.sys, function.directory, function.entries

    def text(name: str) -> str | None:
        return tree.optional_text(f"{here}/{name}") if name.partition("/")[0] in entries else None

    sources = [MEMORY] if MEMORY in entries else []
    sources += [f"{tile}/{TILE_MEMORY}" for tile in sorted(entries) if _TILE.fullmatch(tile)]
    sizes = [tree.optional_integer(f"{here}/{source}") for source in sources]
    memory_bytes = sum(size for size in sizes if size)
    return {
        "model": text(MODEL),
        "uuid": identity(text(UNIQUE_ID)),
        "serial": identity(text(SERIAL_NUMBER)),
        "memory_mib": memory_bytes // _MIB or None,
        "link_group": text(HIVE_ID),
    }


def _vf(machine: Machine, index: int, vf: PciFunction, mdevs: _Mdevs) -> GpuVf:
    address = vf.device.address
    if VENDOR_VFIO in vf.entries:
        types, existing = _vendor_types(machine, vf)
    else:
        types, existing = _mdev_types(machine, vf), mdevs.get(address, ())
    return GpuVf(address, index, vf.device.numa_node, types, existing)


def _mdevs(machine: Machine) -> _Mdevs:
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
    return {parent: tuple(children) for parent, children in by_parent.items()}


def _mdev_types(machine: Machine, function: PciFunction) -> tuple[MdevType, ...]:
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


def _vendor_types(
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
