"""Hosts that are enabled and alive, have the facts that a flavor wants, and can run the image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compute_agent.provider_tree.trait_names import COMPUTE_STATUS_DISABLED
from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.filters.comparison import matches
from compute_agent.scheduler.filters.host_filter import HostFilter
from compute_agent.scheduler.host_state import HostState


class ComputeFilter(HostFilter):
    """Pass hosts that no operator disabled and whose agent announced itself lately.

    Without a bus every host counts as alive; the trait that marks a disabled host still holds.
    """

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        """Return whether the host is enabled and alive."""
        return not self.reason(host, spec)

    def reason(self, host: HostState, _spec: RequestSpec) -> str:
        """Return why the host cannot be used now."""
        announcement = host.announcement
        if not host.alive:
            return "its agent is silent"
        if announcement is not None and not announcement.enabled:
            return "disabled, as its agent announces"
        root = host.providers.get(host.uuid)
        if root is not None and COMPUTE_STATUS_DISABLED in root.traits:
            return "disabled in placement"
        return ""


_SCOPE = "capabilities"
_DERIVED = {
    "vcpus_total": "VCPU",
    "total_usable_ram_mb": "MEMORY_MB",
    "total_usable_disk_gb": "DISK_GB",
}


class ComputeCapabilitiesFilter(HostFilter):
    """Compare extra specs ``capabilities:<fact>[:<part>...]``, and unscoped ones, with facts.

    A host that does not announce a fact does not have it.
    """

    RUN_ON_REBUILD = False

    def concerns(self, spec: RequestSpec) -> bool:
        """Return whether the flavor asks for capabilities."""
        return bool(_capabilities(spec.flavor.extra_specs))

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        """Return whether every capability asked for is there."""
        return all(
            _satisfies(host, path, condition)
            for path, condition in _capabilities(spec.flavor.extra_specs)
        )

    def reason(self, host: HostState, spec: RequestSpec) -> str:
        """Return the capabilities that are not there."""
        return ", ".join(
            f"{':'.join(path)} is not {condition}"
            for path, condition in _capabilities(spec.flavor.extra_specs)
            if not _satisfies(host, path, condition)
        )


def _capabilities(extra_specs: Mapping[str, str]) -> list[tuple[list[str], str]]:
    conditions = []
    for key, value in extra_specs.items():
        scope = key.split(":")
        if len(scope) == 1:
            # root_required and the like are for placement, not facts of a host
            if key not in ("group_policy", "root_required") and not key.startswith(
                ("same_subtree", "member_of", "in_tree")
            ):
                conditions.append((scope, value))
        elif scope[0] == _SCOPE:
            conditions.append((scope[1:], value))
    return conditions


def _satisfies(host: HostState, path: list[str], condition: str) -> bool:
    if len(path) == 1 and path[0] in _DERIVED:
        return matches(host.capacity(_DERIVED[path[0]]), condition)
    fact: Any = host.announcement.attributes if host.announcement else {}
    for part in path:
        if not isinstance(fact, Mapping) or part not in fact:
            return False
        fact = fact[part]
    return matches(fact, condition)


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
