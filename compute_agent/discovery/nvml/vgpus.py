"""Types of vGPUs that a GPU can make, as NVML describes them."""

from __future__ import annotations

from typing import Any

from compute_agent.discovery.facts import VgpuType
from compute_agent.discovery.nvml.binding import Nvml

PREFIX = "nvidia-"  # the mdev framework calls type 222 `nvidia-222`
NO_PROFILE = 0xFFFFFFFF  # of a type that shares the GPU by time
MIB = 1 << 20


def types(nvml: Nvml, gpu: Any) -> tuple[VgpuType, ...]:
    """Return the types that the GPU supports, by number."""
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
