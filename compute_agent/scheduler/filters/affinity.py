"""Scheduler hints that name instances: on their host, or on another."""

from __future__ import annotations

import ipaddress

from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.filters.host_filter import HostFilter
from compute_agent.scheduler.host_state import HostState


class SameHostFilter(HostFilter):
    """Hint `same_host`: a host that runs one of these instances."""

    run_filter_once_per_request = True

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        """Return whether one of the instances named is here."""
        named_instances = spec.hint("same_host")
        return not named_instances or not host.instances.isdisjoint(named_instances)


class DifferentHostFilter(HostFilter):
    """Hint `different_host`: a host that runs none of these instances."""

    run_filter_once_per_request = True

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        """Return whether none of the instances named is here."""
        return host.instances.isdisjoint(spec.hint("different_host"))


class SimpleCIDRAffinityFilter(HostFilter):
    """Hints `build_near_host_ip` and `cidr`: a host whose address is in that network."""

    run_filter_once_per_request = True

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        """Return whether the host's announced address is in the network."""
        near = spec.hint("build_near_host_ip")
        if not near:
            return True
        address = host.announcement.attributes.get("host_ip") if host.announcement else None
        if address is None:
            return False
        prefix = (spec.hint("cidr") or ("/24",))[0]
        network = ipaddress.ip_network(f"{near[0]}/{prefix.lstrip('/')}", strict=False)
        return ipaddress.ip_address(str(address)) in network
