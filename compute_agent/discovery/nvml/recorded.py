"""GPUs as JSON: what a capture keeps of NVML, and a source that reads it back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from typing import Any, TypeVar

from compute_agent.discovery.errors import FactMalformed
from compute_agent.discovery.facts import (
    CellId,
    GpuInstance,
    MigDevice,
    MigProfile,
    NvLink,
    VgpuType,
    pci_address,
)
from compute_agent.discovery.nvml.facts import NvmlGpu, NvmlReading

Fact = TypeVar("Fact")


class RecordedGpus:
    """A source of GPU facts that were read earlier, perhaps on another machine."""

    def __init__(self, gpus: tuple[NvmlGpu, ...]) -> None:
        self._reading = NvmlReading(gpus=gpus)

    def read(self) -> NvmlReading:
        return self._reading


def to_json(gpus: tuple[NvmlGpu, ...]) -> list[dict[str, Any]]:
    """Return the GPUs as plain objects."""
    return [asdict(gpu) for gpu in gpus]


def from_json(objects: Any, path: str) -> tuple[NvmlGpu, ...]:
    """Return the GPUs of `to_json`.

    Fields left out are unknown, those of other releases are passed over.

    Raises FactMalformed, naming `path`, for anything else.
    """
    try:
        gpus = [_gpu(record) for record in objects]
    except (TypeError, ValueError, KeyError) as error:
        raise FactMalformed(path, repr(objects), f"a list of GPUs ({error})") from error
    return tuple(sorted(gpus, key=lambda gpu: gpu.address))


def _gpu(record: Mapping[str, Any]) -> NvmlGpu:
    gpu_fields = _known_fields(NvmlGpu, record)
    instances, links = gpu_fields.get("gpu_instances"), gpu_fields.get("nvlinks")
    memory_cell, capability = gpu_fields.get("memory_cell"), gpu_fields.get("compute_capability")
    gpu_fields.update(
        address=pci_address(gpu_fields["address"]),
        near_cells=tuple(CellId(cell) for cell in gpu_fields.get("near_cells") or ()),
        memory_cell=None if memory_cell is None else CellId(memory_cell),
        compute_capability=None if capability is None else tuple(capability),
        mig_profiles=_all(MigProfile, gpu_fields.get("mig_profiles")),
        mig_devices=_all(MigDevice, gpu_fields.get("mig_devices")),
        mig_remaining=tuple((str(n), int(c)) for n, c in gpu_fields.get("mig_remaining") or ()),
        gpu_instances=None if instances is None else _all(GpuInstance, instances),
        vgpu_types=tuple(map(_vgpu_type, gpu_fields.get("vgpu_types") or ())),
        nvlinks=None if links is None else tuple(map(_nvlink, links)),
    )
    return NvmlGpu(**gpu_fields)


def _vgpu_type(record: Mapping[str, Any]) -> VgpuType:
    type_fields = _known_fields(VgpuType, record)
    return VgpuType(**{**type_fields, "placements": tuple(type_fields.get("placements") or ())})


def _nvlink(record: Mapping[str, Any]) -> NvLink:
    link = _known_fields(NvLink, record)
    return NvLink(pci_address(link["remote"]), str(link["kind"]), int(link["links"]))


def _all(kind: type[Fact], records: Iterable[Mapping[str, Any]] | None) -> tuple[Fact, ...]:
    return tuple(kind(**_known_fields(kind, item)) for item in records or ())


def _known_fields(kind: type[Any], record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a fact of this kind has of a record that another release may have written."""
    return {field.name: record[field.name] for field in fields(kind) if field.name in record}
