"""Facts that NVIDIA's driver adds, asked through the binding `pynvml` (extra `nvidia`).

They are of GPUs that sysfs has found: a GPU bound to vfio-pci is invisible to NVML.
"""

from __future__ import annotations

from msgspec import Struct

from compute_agent.discovery.facts import CellId, MigProfile, NvmlFacts, PciAddress


class NvmlGpu(NvmlFacts, frozen=True):
    """One GPU as NVML sees it; None = it does not report it (`NVML_ERROR_NOT_SUPPORTED`)."""

    address: PciAddress
    near_cells: tuple[CellId, ...] = ()
    """Host cells the GPU is near to."""
    memory_cell: CellId | None = None
    """The cell that is the GPU's *own* memory (Grace Hopper), not where the GPU is."""
    mig_profiles: tuple[MigProfile, ...] = ()


class NvmlReading(Struct, frozen=True):
    """One look through NVML."""

    gpus: tuple[NvmlGpu, ...] = ()
    warnings: tuple[str, ...] = ()
    lost_gpus: tuple[PciAddress, ...] = ()
    """GPUs that fell off the bus: they give nothing any more, whatever sysfs shows."""
