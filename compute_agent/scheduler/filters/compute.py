"""Hosts that are enabled, alive and not busy, have the facts wanted, and may run the image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from oslo_utils import versionutils

from compute_agent.provider_tree.trait_names import COMPUTE_STATUS_DISABLED
from compute_agent.request.errors import InvalidRequest
from compute_agent.request.extra_specs import is_for_placement
from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.filters.facts import fact as fact_of
from compute_agent.scheduler.filters.facts import matches
from compute_agent.scheduler.filters.host_filter import HostFilter
from compute_agent.scheduler.host_state import Hosts, HostState


class ComputeFilter(HostFilter):
    """Pass hosts that no operator disabled and whose agent announced itself lately.

    Without a bus every host counts as alive; the trait that marks a disabled host still holds.
    """

    def filter_all(self, hosts: Sequence[HostState], _spec: RequestSpec) -> Hosts:
        """Return the hosts that are enabled and alive."""
        all_hosts = Hosts.of(hosts)
        enabled = [announced.enabled for announced in all_hosts.announcements]
        alive, disabled = all_hosts.alive, all_hosts.having(COMPUTE_STATUS_DISABLED)
        if all(alive) and all(enabled) and not any(disabled):
            return all_hosts
        return all_hosts.where(
            is_alive and is_enabled and not is_disabled
            for is_alive, is_enabled, is_disabled in zip(alive, enabled, disabled, strict=True)
        )

    def reason(self, host: HostState, _spec: RequestSpec) -> str:
        """Return why the host cannot be used now."""
        if not host.alive:
            return "its agent is silent"
        if host.announcement is not None and not host.announcement.enabled:
            return "disabled, as its agent announces"
        return "disabled in placement"


class AllHostsFilter(HostFilter):
    """Pass every host, for clouds where placement decides alone."""

    run_filter_once_per_request = True

    def host_passes(self, _host: HostState, _spec: RequestSpec) -> bool:
        """Return True."""
        return True


_SCOPE = "capabilities"
_ADDRESS_BITS = "hw:maxphysaddr_bits"
_BITS = ("cpu_info", "maxphysaddr", "bits")


class ComputeCapabilitiesFilter(HostFilter):
    """Compare extra specs `capabilities:<fact>[:<part>...]`, and `hw:maxphysaddr_bits`.

    A host that does not announce a fact does not have it. An extra spec without a scope counts
    where the host announces a fact of its name; others are about aggregates.
    """

    RUN_ON_REBUILD = False

    def concerns(self, spec: RequestSpec) -> bool:
        """Return whether the flavor asks for capabilities."""
        return bool(_capabilities(spec.flavor.extra_specs))

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        """Return whether every capability asked for is there."""
        return not self.reason(host, spec)

    def reason(self, host: HostState, spec: RequestSpec) -> str:
        """Return the capabilities that are not there."""
        missing_capabilities = []
        for path, condition, is_scoped in _capabilities(spec.flavor.extra_specs):
            fact = fact_of(host, path)
            if fact is None and not is_scoped:
                continue
            if fact is None or not matches(fact, condition):
                missing_capabilities.append(f"{':'.join(path)} is not {condition}")
        return ", ".join(missing_capabilities)


def _capabilities(extra_specs: Mapping[str, str]) -> list[tuple[list[str], str, bool]]:
    """Return what is asked for: the path of a fact, the condition, and whether it has a scope."""
    conditions = []
    for key, value in extra_specs.items():
        scope, *path = key.split(":")
        if not path and not is_for_placement(key):
            conditions.append(([scope], value, False))
        elif path and scope == _SCOPE:
            conditions.append((path, value, True))
        elif key == _ADDRESS_BITS:
            conditions.append((list(_BITS), f">= {value}", True))
    return conditions


_ARCHITECTURES = {"amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64"}
"""Other names of an architecture."""
_ARCHITECTURE_TRAITS = ("HW_ARCH_", "COMPUTE_ARCH_")


class ImagePropertiesFilter(HostFilter):
    """Compare `hw_architecture`, `img_hv_type` and `hw_vm_mode` with what the host runs.

    And, beside one of these, `img_hv_requested_version` and `hw_maxphysaddr_bits` with what it
    announces of them; a host that announces none passes.

    Hosts announce `supported_instances`, a list of [architecture, hypervisor type, mode]. One
    that does not is judged by its architecture traits alone; where it has none of these either, it
    passes and its agent decides.
    """

    RUN_ON_REBUILD = True

    def concerns(self, spec: RequestSpec) -> bool:
        """Return whether the image has one of these properties."""
        return any(self._wanted_values(spec))

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        """Return whether the host supports the image."""
        wanted_values = self._wanted_values(spec)
        if not (_has_address_bits(host, spec) and _has_version(host, spec)):
            return False
        supported_kinds = fact_of(host, ("supported_instances",))
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
        wanted_traits = {f"{prefix}{suffix}" for prefix in _ARCHITECTURE_TRAITS}
        return not wanted_traits.isdisjoint(architecture_traits)

    def _wanted_values(self, spec: RequestSpec) -> list[str | None]:
        properties = spec.image.properties
        architecture = properties.get("hw_architecture") or self.options.default_architecture
        kinds = [properties.get(name) for name in ("img_hv_type", "hw_vm_mode")]
        return [_ARCHITECTURES.get(architecture.lower(), architecture) or None, *kinds]


def _has_address_bits(host: HostState, spec: RequestSpec) -> bool:
    bits = fact_of(host, _BITS)
    wanted_bits = spec.image.properties.get("hw_maxphysaddr_bits")
    return bits is None or wanted_bits is None or matches(bits, f">= {wanted_bits}")


def _has_version(host: HostState, spec: RequestSpec) -> bool:
    version = fact_of(host, ("hypervisor_version",))
    wanted_version = spec.image.properties.get("img_hv_requested_version")
    if not isinstance(version, int) or wanted_version is None:
        return True
    numbers = (version // 1_000_000, version // 1000 % 1000, version % 1000)
    try:
        predicate = versionutils.VersionPredicate(wanted_version)
    except ValueError as error:
        raise InvalidRequest(
            "image property img_hv_requested_version", wanted_version, "such as >=7.0,<8.0"
        ) from error
    return bool(predicate.satisfied_by(".".join(map(str, numbers))))


class IsolatedHostsFilter(HostFilter):
    """Isolated images on isolated hosts only, and others off these hosts unless that is allowed."""

    run_filter_once_per_request = True
    RUN_ON_REBUILD = True

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        """Return whether image and host belong together."""
        image_isolated = spec.image.id in self.options.isolated_images
        host_isolated = host.name in self.options.isolated_hosts
        if not self.options.isolated_hosts:
            is_restricted = self.options.restrict_isolated_hosts_to_isolated_images
            return not (is_restricted and image_isolated)
        if not self.options.restrict_isolated_hosts_to_isolated_images:
            return host_isolated or not image_isolated
        return image_isolated == host_isolated


class LimitFilter(HostFilter):
    """At most so many of something that hosts announce; one that announces no number passes.

    `option`: the limit; `counted`: the field of an announcement; `what`: the same in words.
    """

    option = ""
    counted = ""
    what = ""

    def host_passes(self, host: HostState, _spec: RequestSpec) -> bool:
        """Return whether the host may have one more."""
        return self._count(host) < self.limit(host)

    def reason(self, host: HostState, _spec: RequestSpec) -> str:
        """Return how many the host has."""
        return f"has {self._count(host)} of at most {self.limit(host)} {self.what}"

    def limit(self, _host: HostState) -> int:
        """Return how many the host may have."""
        return int(getattr(self.options, self.option))

    def _count(self, host: HostState) -> int:
        return (getattr(host.announcement, self.counted, None) or 0) + host.claimed_here


class NumInstancesFilter(LimitFilter):
    """At most `max_instances_per_host` instances."""

    option = "max_instances_per_host"
    counted = what = "instances"


class IoOpsFilter(LimitFilter):
    """At most `max_io_ops_per_host` builds, resizes and migrations under way."""

    option = "max_io_ops_per_host"
    counted = "io_ops"
    what = "operations under way"
