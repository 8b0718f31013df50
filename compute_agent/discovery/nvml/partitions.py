"""Partitions of a GPU: the shapes and pieces of Multi-Instance GPU, and the types of vGPUs.

NVML shows only to root which parts of MIG exist, and which could still be made.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from compute_agent.discovery.facts import GpuInstance, MigDevice, MigProfile, VgpuType
from compute_agent.discovery.nvml.binding import Nvml, number, text_of

PREFIX = "MIG "
MOST = 1024  # parts of a GPU, far above what there is
VGPU_PREFIX = "nvidia-"  # the mdev framework calls type 222 `nvidia-222`
NO_PROFILE = 0xFFFFFFFF  # of a type that shares the GPU by time
MIB = 1 << 20


def profiles(nvml: Nvml, gpu: Any) -> tuple[MigProfile, ...]:
    """Return every shape that the GPU knows, by name."""
    count = getattr(nvml.binding, "NVML_GPU_INSTANCE_PROFILE_COUNT", 0)
    function = "nvmlDeviceGetGpuInstanceProfileInfo"
    shapes = (
        nvml.ask(function, gpu, index, read=_profile, is_numbered=True) for index in range(count)
    )
    return tuple(
        sorted(
            (shape for shape in shapes if shape is not None),
            key=lambda profile: (profile.name, profile.profile_id),
        )
    )


def _profile(shape: Any) -> MigProfile:
    slices, memory_mib = number(shape.sliceCount, MOST), number(shape.memorySizeMB)
    name = text_of(shape.name or "").removeprefix(PREFIX)
    return MigProfile(
        name=name or plain_name(slices, memory_mib),
        profile_id=number(shape.id),
        slices=slices,
        memory_mib=memory_mib,
        max_instances=number(shape.instanceCount, MOST),
    )


def instances(
    nvml: Nvml, gpu: Any, profiles: tuple[MigProfile, ...]
) -> tuple[GpuInstance, ...] | None:
    """Return the parts that exist, by placement; None = not reported."""
    parts: list[GpuInstance] = []
    for profile in profiles:
        # handles, of which the binding has a type but no list
        handles = (ctypes.c_void_p * max(profile.max_instances, 1))()
        count = ctypes.c_uint(len(handles))
        answer = nvml.ask_handle(
            "nvmlDeviceGetGpuInstances", gpu, profile.profile_id, handles, ctypes.byref(count)
        )
        if answer is None:
            return None
        for handle in handles[: count.value]:
            part = nvml.ask("nvmlGpuInstanceGetInfo", ctypes.c_void_p(handle), read=_part)
            if part is not None:
                parts.append(part)
    return tuple(sorted(set(parts)))


def _part(part: Any) -> GpuInstance:
    place = part.placement
    return GpuInstance(
        number(place.start), number(place.size), number(part.profileId), number(part.id)
    )


def remaining_counts(
    nvml: Nvml, gpu: Any, profiles: tuple[MigProfile, ...]
) -> tuple[tuple[str, int], ...]:
    """Return how many more of each profile could be made now; those not reported are left out."""
    counts = (
        (
            profile.name,
            nvml.ask_number(
                "nvmlDeviceGetGpuInstanceRemainingCapacity", gpu, profile.profile_id, most=MOST
            ),
        )
        for profile in profiles
    )
    return tuple((name, count) for name, count in counts if count is not None)


def devices(
    nvml: Nvml,
    gpu: Any,
    profiles: tuple[MigProfile, ...],
    parts: Sequence[GpuInstance] = (),
) -> tuple[MigDevice, ...]:
    """Return the pieces that exist, by GPU instance and compute instance.

    `parts`: the GPU instances, which say where a piece lies.
    """
    place_of = {part.id: part for part in parts}
    pieces = []
    for index in range(nvml.ask_number("nvmlDeviceGetMaxMigDeviceCount", gpu, most=MOST) or 0):
        handle = nvml.ask_handle("nvmlDeviceGetMigDeviceHandleByIndex", gpu, index)
        device = None if handle is None else _device(nvml, handle, profiles)
        if device is not None:
            place = place_of.get(device.gpu_instance)
            pieces.append(replace(device, start=place.start, size=place.size) if place else device)
    return tuple(sorted(pieces, key=lambda piece: (piece.gpu_instance, piece.compute_instance)))


def _device(nvml: Nvml, handle: Any, profiles: tuple[MigProfile, ...]) -> MigDevice | None:
    uuid = nvml.ask_text("nvmlDeviceGetUUID", handle)
    gpu_instance = nvml.ask_number("nvmlDeviceGetGpuInstanceId", handle)
    compute_instance = nvml.ask_number("nvmlDeviceGetComputeInstanceId", handle)
    if uuid is None or gpu_instance is None or compute_instance is None:
        return None  # it went away between two calls
    shape = nvml.ask("nvmlDeviceGetAttributes", handle, read=_shape)
    _, marker, name = (nvml.ask_text("nvmlDeviceGetName", handle) or "").rpartition(PREFIX)
    return MigDevice(
        uuid=uuid,
        profile=name if marker else _profile_name(shape, profiles),
        gpu_instance=gpu_instance,
        compute_instance=compute_instance,
    )


def _shape(shape: Any) -> tuple[int, int, int]:
    """Return the slices and the memory of a device, and the slices of its compute instance."""
    return (
        number(shape.gpuInstanceSliceCount),
        number(shape.memorySizeMB),
        number(shape.computeInstanceSliceCount),
    )


def _profile_name(shape: tuple[int, int, int] | None, profiles: tuple[MigProfile, ...]) -> str:
    """Derive the profile's name from its shape, for drivers that leave it out of the device's."""
    if shape is None:
        return "unknown"
    slices, memory_mib, parts = shape
    fitting = [profile for profile in profiles if profile.slices == slices]
    nearest = min(
        fitting,
        key=lambda profile: (abs(profile.memory_mib - memory_mib), profile.name),
        default=None,
    )
    name = nearest.name if nearest else plain_name(slices, memory_mib)
    return name if parts in (0, slices) else f"{parts}c.{name}"


def plain_name(slices: int, memory_mib: int) -> str:
    """Form a profile's name as NVIDIA does, with the memory in whole GB, rounded up."""
    return f"{slices}g.{-(-memory_mib // 1024)}gb"


def vgpu_types(nvml: Nvml, gpu: Any, *, has_mixed_sizes: bool) -> tuple[VgpuType, ...]:
    """Return the types of vGPUs that the GPU supports, by number.

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
    name = f"{VGPU_PREFIX}{type_number}"
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
