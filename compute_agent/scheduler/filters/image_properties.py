"""Hosts that can run the image's architecture, hypervisor type and machine mode."""

from __future__ import annotations

from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.filters.host_filter import HostFilter
from compute_agent.scheduler.host_state import HostState

_ANNOUNCED = "supported_instances"
_ARCHITECTURE_TRAITS = ("HW_ARCH_", "COMPUTE_ARCH_")


class ImagePropertiesFilter(HostFilter):
    """Compare ``hw_architecture``, ``img_hv_type`` and ``hw_vm_mode`` with what the host runs.

    Hosts announce ``supported_instances``, a list of [architecture, hypervisor type, mode]. One
    that does not is judged by its architecture traits alone; where it has none of these either, it
    passes and its agent decides.
    """

    RUN_ON_REBUILD = True

    def concerns(self, spec: RequestSpec) -> bool:
        """Return whether the image has one of these properties."""
        return any(_wanted_values(spec))

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        """Return whether the host supports the image."""
        wanted_values = _wanted_values(spec)
        supported_kinds = (
            host.announcement.attributes.get(_ANNOUNCED) if host.announcement else None
        )
        if supported_kinds:
            return any(
                all(
                    want is None or want.lower() == str(have).lower()
                    for want, have in zip(wanted_values, kind, strict=False)
                )
                for kind in supported_kinds
            )
        architecture = wanted_values[0]
        architecture_traits = [
            name for name in host.traits if name.startswith(_ARCHITECTURE_TRAITS)
        ]
        if architecture is None or not architecture_traits:
            return True
        suffix = architecture.upper().replace("-", "_")
        return any(name.removeprefix(_prefix(name)) == suffix for name in architecture_traits)


def _wanted_values(spec: RequestSpec) -> list[str | None]:
    properties = spec.image.properties
    return [properties.get(name) for name in ("hw_architecture", "img_hv_type", "hw_vm_mode")]


def _prefix(name: str) -> str:
    return next(prefix for prefix in _ARCHITECTURE_TRAITS if name.startswith(prefix))
