"""GPUs as JSON: what a capture keeps of NVML, and a source that reads it back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from compute_agent.discovery.errors import FactMalformed
from compute_agent.discovery.facts import (
    CellId,
    MigDevice,
    MigProfile,
    VgpuInstance,
    VgpuType,
    pci_address,
)
from compute_agent.discovery.nvml.facts import NvmlGpu, NvmlReading


class RecordedGpus:
    """A source of GPU facts that were read earlier, perhaps on another machine."""

    def __init__(self, gpus: tuple[NvmlGpu, ...]) -> None:
        self._reading = NvmlReading(gpus=gpus)

    def read(self) -> NvmlReading:
        return self._reading


def to_json(gpus: tuple[NvmlGpu, ...]) -> list[dict[str, Any]]:
    """The GPUs as plain objects."""
    return [asdict(gpu) for gpu in gpus]


def from_json(objects: Any, path: str) -> tuple[NvmlGpu, ...]:
    """The GPUs of `to_json`; fields left out are unknown.

    Raises FactMalformed, naming `path`, for anything else.
    """
    try:
        gpus = [_gpu(fields) for fields in objects]
    except (TypeError, ValueError, KeyError) as error:
        raise FactMalformed(path, repr(objects), f"a list of GPUs ({error})") from error
    return tuple(sorted(gpus, key=lambda gpu: gpu.address))


def _gpu(fields: Mapping[str, Any]) -> NvmlGpu:
    known = dict(fields)
    memory_cell, capability = known.get("memory_cell"), known.get("compute_capability")
    known.update(
        address=pci_address(known["address"]),
        near_cells=tuple(CellId(cell) for cell in known.get("near_cells") or ()),
        memory_cell=None if memory_cell is None else CellId(memory_cell),
        compute_capability=None if capability is None else tuple(capability),
        mig_profiles=tuple(MigProfile(**item) for item in known.get("mig_profiles") or ()),
        mig_devices=tuple(MigDevice(**item) for item in known.get("mig_devices") or ()),
        vgpu_types=tuple(VgpuType(**item) for item in known.get("vgpu_types") or ()),
        vgpus=tuple(VgpuInstance(**item) for item in known.get("vgpus") or ()),
    )
    return NvmlGpu(**known)
