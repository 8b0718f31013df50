"""Hosts whose announced facts satisfy the flavor's ``capabilities:`` extra specs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.filters.comparison import matches
from compute_agent.scheduler.filters.host_filter import HostFilter
from compute_agent.scheduler.host_state import HostState

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
