"""Types of vGPUs that a GPU can make, as NVML describes them."""

from __future__ import annotations

from typing import Any

from compute_agent.discovery.facts import VgpuType
from compute_agent.discovery.nvml.binding import Nvml

PREFIX = "nvidia-"  # the mdev framework calls type 222 `nvidia-222`
NO_PROFILE = 0xFFFFFFFF  # of a type that shares the GPU by time
MIB = 1 << 20


def sizes_mixed(nvml: Nvml, gpu: Any) -> bool | None:
    """Whether vGPUs of different sizes may share the GPU's time; None = not reported."""
    mode = nvml.ask("nvmlDeviceGetVgpuHeterogeneousMode", gpu)
    return None if mode is None else bool(mode)


def types(nvml: Nvml, gpu: Any, *, has_mixed_sizes: bool) -> tuple[VgpuType, ...]:
    """Return the types that the GPU supports, by number.

    `has_mixed_sizes`: their sizes may be mixed on the GPU, so that each has places of its own.
    """
    return tuple(
        _type(nvml, gpu, number, has_mixed_sizes=has_mixed_sizes)
        for number in sorted(nvml.ask("nvmlDeviceGetSupportedVgpus", gpu) or ())
    )


def _type(nvml: Nvml, gpu: Any, number: int, *, has_mixed_sizes: bool) -> VgpuType:
    framebuffer = nvml.ask("nvmlVgpuTypeGetFramebufferSize", number)
    profile = nvml.ask("nvmlVgpuTypeGetGpuInstanceProfileId", number)
    backed_by_mig = profile not in (None, NO_PROFILE)
    size, places = (
        _placements(nvml, gpu, number) if has_mixed_sizes and not backed_by_mig else (0, ())
    )
    return VgpuType(
        id=f"{PREFIX}{number}",
        name=nvml.ask_text("nvmlVgpuTypeGetName", number) or f"{PREFIX}{number}",
        framebuffer_mib=None if framebuffer is None else framebuffer // MIB,
        max_instances=nvml.ask("nvmlVgpuTypeGetMaxInstances", gpu, number),
        max_instances_per_guest=nvml.ask("nvmlVgpuTypeGetMaxInstancesPerVm", number),
        gpu_instance_profile=profile if backed_by_mig else None,
        max_instances_per_gpu_instance=nvml.ask("nvmlVgpuTypeGetMaxInstancesPerGpuInstance", number)
        if backed_by_mig
        else None,
        placements=places,
        placement_size=size,
    )


def _placements(nvml: Nvml, gpu: Any, number: int) -> tuple[int, tuple[int, ...]]:
    answer = nvml.ask("nvmlDeviceGetVgpuTypeSupportedPlacements", gpu, number)
    if answer is None:
        return 0, ()
    # by position: bindings before 13.615 call the size `count`, and the count `placementSize`
    _, size, count, places = (getattr(answer, name) for name, _ in answer._fields_)
    return size, tuple(sorted(places[:count]))
