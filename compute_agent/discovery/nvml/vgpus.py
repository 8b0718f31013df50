"""Types of vGPUs that a GPU can make, as NVML describes them."""

from __future__ import annotations

from typing import Any

from compute_agent.discovery.facts import VgpuType
from compute_agent.discovery.nvml.binding import Nvml, number

PREFIX = "nvidia-"  # the mdev framework calls type 222 `nvidia-222`
NO_PROFILE = 0xFFFFFFFF  # of a type that shares the GPU by time
MIB = 1 << 20


def sizes_mixed(nvml: Nvml, gpu: Any) -> bool | None:
    """Whether vGPUs of different sizes may share the GPU's time; None = not reported."""
    return nvml.ask("nvmlDeviceGetVgpuHeterogeneousMode", gpu, read=bool)


def types(nvml: Nvml, gpu: Any, *, has_mixed_sizes: bool) -> tuple[VgpuType, ...]:
    """Return the types that the GPU supports, by number.

    `has_mixed_sizes`: their sizes may be mixed on the GPU, so that each has places of its own.
    """
    return tuple(
        _type(nvml, gpu, type_number, has_mixed_sizes=has_mixed_sizes)
        for type_number in nvml.ask("nvmlDeviceGetSupportedVgpus", gpu, read=_numbers) or ()
    )


def _numbers(answer: Any) -> list[int]:
    return sorted(map(number, answer))


def _type(nvml: Nvml, gpu: Any, type_number: int, *, has_mixed_sizes: bool) -> VgpuType:
    ask = nvml.ask_number
    framebuffer = ask("nvmlVgpuTypeGetFramebufferSize", type_number)
    profile = ask("nvmlVgpuTypeGetGpuInstanceProfileId", type_number)
    backed_by_mig = profile not in (None, NO_PROFILE)
    size, places = 0, tuple[int, ...]()
    if has_mixed_sizes and not backed_by_mig:
        function = "nvmlDeviceGetVgpuTypeSupportedPlacements"
        size, places = nvml.ask(function, gpu, type_number, read=_placements) or (0, ())
    name = f"{PREFIX}{type_number}"
    return VgpuType(
        id=name,
        name=nvml.ask_text("nvmlVgpuTypeGetName", type_number) or name,
        framebuffer_mib=None if framebuffer is None else framebuffer // MIB,
        max_instances=ask("nvmlVgpuTypeGetMaxInstances", gpu, type_number),
        max_instances_per_guest=ask("nvmlVgpuTypeGetMaxInstancesPerVm", type_number),
        gpu_instance_profile=profile if backed_by_mig else None,
        max_instances_per_gpu_instance=ask("nvmlVgpuTypeGetMaxInstancesPerGpuInstance", type_number)
        if backed_by_mig
        else None,
        placements=places,
        placement_size=size,
    )


def _placements(answer: Any) -> tuple[int, tuple[int, ...]]:
    # by position: bindings before 13.615 call the size `count`, and the count `placementSize`
    _, size, count, places = (getattr(answer, name) for name, _ in answer._fields_)
    return number(size), tuple(_numbers(places[: number(count)]))
