"""GPUs by PCI class, and whatever else makes mediated devices."""

from __future__ import annotations

from compute_agent.discovery.facts import GpuVf, PhysicalGpu
from compute_agent.discovery.sysfs import mdevs
from compute_agent.discovery.sysfs.pci import PciFunction, PciFunctions
from compute_agent.discovery.sysfs.reader import Machine

DISPLAY_CLASSES = ("0300", "0302", "0380")  # VGA, 3D, other display controller

NO_GPU_VENDORS = frozenset(
    {
        "1a03",  # ASPEED, the screen of a management controller
        "102b",  # Matrox, likewise
        "18ca",  # XGI, likewise
        "1234",  # Bochs and QEMU's standard VGA
        "1013",  # Cirrus Logic, emulated
        "15ad",  # VMware
        "1414",  # Hyper-V
        "1af4",  # virtio-gpu
        "1b36",  # QXL
        "80ee",  # VirtualBox
    }
)
"""Makers of display controllers that are not GPUs for guests."""


def discover(machine: Machine, functions: PciFunctions) -> tuple[PhysicalGpu, ...]:
    """Every GPU and other maker of mediated devices, by address; VFs are with their PF."""
    existing_mdevs = mdevs.existing_mdevs(machine)
    return tuple(
        _gpu(machine, function, functions, existing_mdevs)
        for function in functions.values()
        if not _belongs_to_pf(function, functions)
        and (_is_gpu(function) or _makes_mdevs(function, functions))
    )


def _belongs_to_pf(function: PciFunction, functions: PciFunctions) -> bool:
    """Whether it is a VF of a PF that is here; without its PF it stands for itself."""
    return function.device.physfn in functions


def _is_gpu(function: PciFunction) -> bool:
    device = function.device
    return device.class_code.startswith(DISPLAY_CLASSES) and device.vendor_id not in NO_GPU_VENDORS


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
    )


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
