"""vGPUs as NVML sees them: the types a GPU can make, and those that guests hold."""

from __future__ import annotations

from typing import Any

from compute_agent.discovery.facts import VgpuInstance, VgpuType
from compute_agent.discovery.nvml.binding import Nvml

PREFIX = "nvidia-"  # the mdev framework calls type 222 `nvidia-222`
NO_PROFILE = 0xFFFFFFFF  # of a type that shares the GPU by time
MIB = 1 << 20


def types(nvml: Nvml, gpu: Any) -> tuple[VgpuType, ...]:
    """The types the GPU supports, by number."""
    return tuple(
        _type(nvml, gpu, number)
        for number in sorted(nvml.ask("nvmlDeviceGetSupportedVgpus", gpu) or ())
    )


def _type(nvml: Nvml, gpu: Any, number: int) -> VgpuType:
    framebuffer = nvml.ask("nvmlVgpuTypeGetFramebufferSize", number)
    profile = nvml.ask("nvmlVgpuTypeGetGpuInstanceProfileId", number)
    return VgpuType(
        id=f"{PREFIX}{number}",
        name=nvml.ask_text("nvmlVgpuTypeGetName", number) or f"{PREFIX}{number}",
        vgpu_class=nvml.ask_text("nvmlVgpuTypeGetClass", number),
        framebuffer_mib=None if framebuffer is None else framebuffer // MIB,
        max_instances=nvml.ask("nvmlVgpuTypeGetMaxInstances", gpu, number),
        max_instances_per_guest=nvml.ask("nvmlVgpuTypeGetMaxInstancesPerVm", number),
        gpu_instance_profile=None if profile == NO_PROFILE else profile,
    )


def active(nvml: Nvml, gpu: Any) -> tuple[VgpuInstance, ...]:
    """The vGPUs that guests hold, by uuid."""
    found = []
    for instance in nvml.ask("nvmlDeviceGetActiveVgpus", gpu) or ():
        uuid = nvml.ask_text("nvmlVgpuInstanceGetUUID", instance)
        number = nvml.ask("nvmlVgpuInstanceGetType", instance)
        if uuid is None or number is None:
            continue  # its guest ended between two calls
        guest = nvml.ask("nvmlVgpuInstanceGetVmID", instance)
        found.append(
            VgpuInstance(
                uuid=uuid,
                type_id=f"{PREFIX}{number}",
                mdev_uuid=nvml.ask_text("nvmlVgpuInstanceGetMdevUUID", instance),
                guest=None if guest is None else _text(guest[0]),
            )
        )
    return tuple(sorted(found, key=lambda vgpu: vgpu.uuid))


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
