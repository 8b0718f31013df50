"""Settings of a flavor and an image that exclude one another, refused with both named.

What Nova refuses when a server is created is refused here too, so that a request means the same to
both; the test that compares them is in tests/differential/nova.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from oslo_utils import strutils

from compute_agent.request import extra_specs, flavor_settings
from compute_agent.request.errors import InvalidRequest
from compute_agent.request.spec import RequestSpec

_EQUAL: Final = (
    "hw:tpm_version",
    "hw:maxphysaddr_mode",
    "hw:pci_numa_affinity_policy",
    "hw:sound_model",
    "os:secure_boot",
)
"""Settings that flavor and image may both have, with one value."""
_EQUAL_FLAGS: Final = (
    *("hw:mem_encryption", "hw:locked_memory", "hw:virtio_packed_ring", "hw:ephemeral_encryption"),
)
_PINNING: Final = ("dedicated", "mixed")


def check(spec: RequestSpec) -> None:
    """Check that no setting contradicts another.

    :raises InvalidRequest: names the one, its value, and the other.
    """
    for rule in _RULES:
        rule(spec)


def _equal_settings(spec: RequestSpec) -> None:
    names = [*_EQUAL]
    if spec.setting("hw:tpm_version") is not None:
        names.append("hw:tpm_model")
    if _is_true(spec.setting("hw:mem_encryption")):
        names.append("hw:mem_encryption_model")
    if _is_true(spec.setting("hw:ephemeral_encryption")):
        names.append("hw:ephemeral_encryption_format")
    for name in names:
        flavor, image = _both(spec, name)
        if None not in (flavor, image) and flavor != image:
            raise _conflict(spec, name)
    for name in _EQUAL_FLAGS:
        flavor, image = _both(spec, name)
        if None not in (flavor, image) and _is_true(flavor) != _is_true(image):
            raise _conflict(spec, name)


def _policies(spec: RequestSpec) -> None:
    flavor, image = _both(spec, "hw:cpu_policy")
    if (flavor == "shared" and image in _PINNING) or (flavor, image) == ("mixed", "dedicated"):
        raise _conflict(spec, "hw:cpu_policy")
    flavor, image = _both(spec, "hw:cpu_thread_policy")
    if flavor not in (None, "prefer") and image not in (None, flavor):
        raise _conflict(spec, "hw:cpu_thread_policy")
    is_pinned = spec.setting("hw:cpu_policy") in _PINNING or _written(spec, "PCPU")
    for name, value in _settings_of_pinned_guests(spec):
        if not is_pinned:
            raise InvalidRequest(name, value, "hw:cpu_policy = dedicated or mixed beside it")


def _whole_cores(spec: RequestSpec) -> None:
    """Check that whole cores can be as many CPUs as are pinned: no core has an odd number of them.

    Nova lets the request through, and no host of ours could ever keep it.
    """
    if spec.setting("hw:cpu_thread_policy") != "require":
        return
    pinned = spec.flavor.vcpus
    if spec.setting("hw:cpu_policy") == "mixed":
        pinned = len(flavor_settings.dedicated_cpus(spec, pinned))
    if pinned % 2:
        raise InvalidRequest(
            "hw:cpu_thread_policy",
            "require",
            f"an even number of pinned CPUs beside it, which are {pinned}: it gives whole cores, "
            "of two CPUs or more. Change the flavor's vcpus or hw:cpu_dedicated_mask, or use "
            "hw:cpu_thread_policy = prefer",
        )


def _settings_of_pinned_guests(spec: RequestSpec) -> Iterator[tuple[str, str]]:
    threads = spec.setting("hw:cpu_thread_policy")
    if threads is not None:
        yield "hw:cpu_thread_policy", threads
    emulator = spec.flavor_setting("hw:emulator_threads_policy")
    if emulator == "isolate":
        yield "hw:emulator_threads_policy", emulator
    realtime = spec.flavor_setting("hw:cpu_realtime")
    if _is_true(realtime):
        yield "hw:cpu_realtime", str(realtime)


def _written(spec: RequestSpec, resource_class: str) -> int:
    """Return how much of a class the flavor names in all of its groups."""
    amounts = (
        extra_specs.amount(key, value)
        for key, value in spec.flavor.extra_specs.items()
        if key.startswith("resources") and key.endswith(f":{resource_class}")
    )
    return sum(amounts)


def _amounts(spec: RequestSpec) -> None:
    shared, pinned = _written(spec, "VCPU"), _written(spec, "PCPU")
    policy = spec.setting("hw:cpu_policy")
    if policy is not None and (shared or pinned):
        name = "PCPU" if pinned else "VCPU"
        raise InvalidRequest(
            f"resources:{name}", pinned or shared, f"no amount beside hw:cpu_policy = {policy}"
        )
    if shared and pinned:
        raise InvalidRequest("resources:VCPU", shared, "no amount beside resources:PCPU")
    wanted = spec.flavor.vcpus
    wanted += spec.flavor_setting("hw:emulator_threads_policy") == "isolate"
    if pinned and pinned != wanted:
        raise InvalidRequest("resources:PCPU", pinned, f"{wanted}, the CPUs of the flavor")


def _masks(spec: RequestSpec) -> None:
    policy = spec.setting("hw:cpu_policy")
    mask = spec.flavor_setting("hw:cpu_dedicated_mask")
    if mask is not None and policy != "mixed":
        raise InvalidRequest("hw:cpu_dedicated_mask", mask, "hw:cpu_policy = mixed beside it")
    if not _is_true(spec.flavor_setting("hw:cpu_realtime")):
        return
    realtime_mask = spec.realtime_mask
    if mask is not None and realtime_mask is not None:
        raise InvalidRequest(
            "hw:cpu_realtime_mask", realtime_mask, "one of it and hw:cpu_dedicated_mask"
        )
    if realtime_mask is None and spec.flavor_setting("hw:emulator_threads_policy") is None:
        raise InvalidRequest(
            "hw:cpu_realtime",
            "yes",
            "hw:cpu_realtime_mask, which leaves a CPU for the emulator's own threads, or "
            "hw:emulator_threads_policy beside it",
        )


def _memory(spec: RequestSpec) -> None:
    flavor, image = _both(spec, "hw:mem_page_size")
    if image is not None and flavor not in ("large", "any"):
        raise InvalidRequest(
            "image property hw_mem_page_size",
            image,
            f"none, as hw:mem_page_size of the flavor is {flavor or 'not set'}: an image may "
            "choose where the flavor has large or any",
        )
    if _is_true(spec.setting("hw:locked_memory")) and spec.page_size is None:
        raise InvalidRequest("hw:locked_memory", "true", "hw:mem_page_size beside it")
    if (
        _is_true(spec.setting("hw:mem_encryption"))
        and spec.image.properties.get("hw_firmware_type") != "uefi"
    ):
        raise InvalidRequest("hw:mem_encryption", "true", "an image with hw_firmware_type = uefi")


def _nodes(spec: RequestSpec) -> None:
    if spec.flavor_setting("hw:numa_nodes") is None:
        return
    for name, value in spec.image.properties.items():
        if name == "hw_numa_nodes" or name.startswith(("hw_numa_cpus.", "hw_numa_mem.")):
            raise InvalidRequest(
                f"image property {name}", value, "none, as the flavor has hw:numa_nodes"
            )


_RULES: Final[tuple[Callable[[RequestSpec], None], ...]] = (
    _equal_settings,
    _policies,
    _amounts,
    _masks,
    _whole_cores,
    _memory,
    _nodes,
)


def _conflict(spec: RequestSpec, name: str) -> InvalidRequest:
    return InvalidRequest(
        f"image property {name.replace(':', '_', 1)}",
        spec.image_setting(name),
        f"none, or as {name} of the flavor, which is {spec.flavor_setting(name)!r}",
    )


def _both(spec: RequestSpec, name: str) -> tuple[str | None, str | None]:
    """Return what flavor and image have of a setting."""
    return spec.flavor_setting(name), spec.image_setting(name)


def _is_true(value: str | None) -> bool:
    # other texts than those of a flag are refused where the setting is applied
    return value is not None and bool(strutils.bool_from_string(value))
