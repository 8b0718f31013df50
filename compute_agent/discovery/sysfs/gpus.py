"""GPUs by PCI class, and whatever else makes mediated devices."""

from __future__ import annotations

import re
from typing import Any

from compute_agent.discovery.facts import GpuVf, PciDevice, PhysicalGpu
from compute_agent.discovery.sysfs import mdevs
from compute_agent.discovery.sysfs.pci import PciFunction, PciFunctions
from compute_agent.discovery.sysfs.reader import Machine
from compute_agent.discovery.sysfs.vpd import identity

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
    """Every GPU and other maker of mediated devices, by address; VFs are with their PF."""
    existing_mdevs = mdevs.existing_mdevs(machine)
    return tuple(
        _gpu(machine, function, functions, existing_mdevs)
        for function in functions.values()
        if not _belongs_to_pf(function, functions)
        and (is_gpu(function.device) or _makes_mdevs(function, functions))
    )


def _belongs_to_pf(function: PciFunction, functions: PciFunctions) -> bool:
    """Whether it is a VF of a PF that is here; without its PF it stands for itself."""
    return function.device.physfn in functions


def is_gpu(device: PciDevice) -> bool:
    """Whether a function is a GPU, or a VF of one, by its class and model."""
    if device.class_code.startswith(ACCELERATOR_CLASS):
        return device.vendor_id in GPU_ACCELERATORS
    model = f"{device.vendor_id}:{device.product_id}"
    is_screen = bool(SCREENS & {device.vendor_id, model})
    return device.class_code.startswith(DISPLAY_CLASSES) and not is_screen


def _makes_mdevs(function: PciFunction, functions: PciFunctions) -> bool:
    family = (function, *(functions[address] for address in function.device.vfs))
    return any(mdevs.SUPPORTED_TYPES in member.entries for member in family)


def _gpu(
    machine: Machine,
    function: PciFunction,
    functions: PciFunctions,
    existing_mdevs: mdevs.Mdevs,
) -> PhysicalGpu:
    device = function.device
    return PhysicalGpu(
        address=device.address,
        vendor_id=device.vendor_id,
        product_id=device.product_id,
        numa_node=device.numa_node,
        vfs=tuple(
            _vf(machine, index, functions[address], existing_mdevs)
            for index, address in zip(function.vf_numbers, device.vfs, strict=True)
        ),
        mdev_types=mdevs.types(machine, function),
        mdevs=existing_mdevs.get(device.address, ()),
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


def _vf(
    machine: Machine,
    index: int,
    vf: PciFunction,
    existing_mdevs: mdevs.Mdevs,
) -> GpuVf:
    device = vf.device
    if mdevs.VENDOR_VFIO in vf.entries:
        offered_types, devices = mdevs.vendor_types(machine, vf)
    else:
        offered_types, devices = mdevs.types(machine, vf), existing_mdevs.get(device.address, ())
    return GpuVf(
        address=device.address,
        index=index,
        numa_node=device.numa_node,
        mdev_types=offered_types,
        mdevs=devices,
    )
