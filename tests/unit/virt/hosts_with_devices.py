"""Hosts with GPUs, network cards and PCI devices, and options of their layouts."""

from __future__ import annotations

import json
from typing import Any

from msgspec.structs import replace

from compute_agent.discovery.facts import (
    CellId,
    GpuVf,
    HostTopology,
    MdevType,
    PciAddress,
    PciDevice,
    PhysicalGpu,
    VgpuType,
)
from compute_agent.virt.fake.topology import MachineSize, fake_topology
from compute_agent.virt.layout import LayoutOptions
from compute_agent.virt.layout.device_spec import parse_device_specs
from compute_agent.virt.layout.options import GpuOptions, MdevTypeOptions, PciOptions
from compute_agent.virt.layout.wanted import HostLayout

from .wanted_providers import names

NOTHING = MachineSize(cells=2, cpus_per_cell=4, memory_mib_per_cell=8192, gpus=0, nics=0)


ADDRESS = PciAddress("0000:84:00.0")


def a_gpu(**facts: Any) -> PhysicalGpu:
    known: dict[str, Any] = {
        "vendor_id": "10de",
        "product_id": "2236",
        "numa_node": CellId(1),
    }
    return PhysicalGpu(ADDRESS, **{**known, **facts})


def offering(*types: tuple[str, int]) -> tuple[MdevType, ...]:
    return tuple(MdevType(name, count) for name, count in types)


def host(*gpus: PhysicalGpu) -> HostTopology:
    facts = fake_topology("host1", NOTHING)
    functions = tuple(
        PciDevice(gpu.address, gpu.vendor_id, gpu.product_id, "030200", numa_node=gpu.numa_node)
        for gpu in gpus
    )
    return replace(facts, gpus=gpus, pci_devices=functions)


def gpu_options(*types: MdevTypeOptions, nested: bool = False, **gpu: Any) -> LayoutOptions:
    return LayoutOptions(is_nested=nested, gpu=GpuOptions(mdev_types=types, **gpu))


def devices(layout: HostLayout) -> list[str]:
    return [name for name in names(layout) if "NUMA" not in name and name]


def sriov_gpu(**facts: Any) -> PhysicalGpu:
    vfs = tuple(
        GpuVf(
            PciAddress(f"0000:84:00.{4 + i}"),
            i,
            CellId(1),
            mdev_types=offering(("nvidia-35", 1)),
        )
        for i in range(3)
    )
    return a_gpu(vfs=vfs, **facts)


def fitting(most: int | None, kind: str = "nvidia-35") -> tuple[VgpuType, ...]:
    """What NVML says: so many vGPUs of a type fit on the GPU."""
    return (VgpuType(kind, "GRID", None, most, None, None),)


def pci(**entry: Any) -> PciOptions:
    return PciOptions(True, parse_device_specs([json.dumps(entry)], report=True))


def nic_host(**size: int) -> HostTopology:
    return fake_topology("host1", replace(NOTHING, nics=1, **size))


PF0 = "_0000:80:00.0"
