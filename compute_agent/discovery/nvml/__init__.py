"""Facts that NVIDIA's driver adds, asked through the binding `pynvml` (extra `nvidia`).

They are of GPUs that sysfs has found: a GPU bound to vfio-pci is invisible to NVML.
"""

from __future__ import annotations

from msgspec import Struct

from compute_agent.discovery.facts import (
    CellId,
    GpuInstance,
    MigDevice,
    MigProfile,
    NvLink,
    PciAddress,
    VgpuType,
)


class NvmlGpu(Struct, frozen=True):
    """One GPU as NVML sees it; None = it does not report it (`NVML_ERROR_NOT_SUPPORTED`)."""

    address: PciAddress
    uuid: str | None = None
    serial: str | None = None
    model: str | None = None
    compute_capability: tuple[int, int] | None = None
    near_cells: tuple[CellId, ...] = ()
    """Host cells the GPU is near to."""
    memory_cell: CellId | None = None
    """The cell that is the GPU's *own* memory (Grace Hopper), not where the GPU is."""
    mig_enabled: bool | None = None
    mig_profiles: tuple[MigProfile, ...] = ()
    mig_devices: tuple[MigDevice, ...] = ()
    mig_remaining: tuple[tuple[str, int], ...] = ()
    gpu_instances: tuple[GpuInstance, ...] | None = None
    vgpu_types: tuple[VgpuType, ...] = ()
    vgpu_sizes_mixed: bool | None = None
    nvlinks: tuple[NvLink, ...] | None = None
    critical_xid: int | None = None
    """The last error that broke it since NVML was first read, until it is forgotten."""


class NvmlReading(Struct, frozen=True):
    """One look through NVML."""

    gpus: tuple[NvmlGpu, ...] = ()
    warnings: tuple[str, ...] = ()
    lost_gpus: tuple[PciAddress, ...] = ()
    """GPUs that fell off the bus: they give nothing any more, whatever sysfs shows."""
