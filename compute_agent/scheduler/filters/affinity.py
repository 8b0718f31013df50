"""Instances together or apart: those that hints name, and members of server groups."""

from __future__ import annotations

import ipaddress

from compute_agent.request.spec import InstanceGroup, RequestSpec
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


class ServerGroupAntiAffinityFilter(HostFilter):
    """Policy `anti-affinity`: at most `max_server_per_host` (1) members on a host.

    Members on hosts that the request does not name are looked for on each host when its turn to be
    claimed comes (`GroupMembers`), in the name of this filter.
    """

    RUN_ON_REBUILD = False

    def concerns(self, spec: RequestSpec) -> bool:
        """Return whether the request is for a group of this policy."""
        return spec.group_of("anti-affinity") is not None

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        """Return whether the host has room for one more member."""
        group = spec.group_of("anti-affinity")
        if group is None or (spec.instance and spec.instance in host.instances):
            # an instance that moves is no further member where it is
            return True
        return host.member_count(group, spec) < _most(group)

    def reason(self, host: HostState, spec: RequestSpec) -> str:
        """Return how many members the host has."""
        group = spec.instance_group
        return (
            f"has {host.member_count(group, spec)} of at most {_most(group)} members of the group"
            if group is not None
            else ""
        )


class ServerGroupAffinityFilter(HostFilter):
    """Policy `affinity`: where the group has members, only their hosts."""

    RUN_ON_REBUILD = False

    def concerns(self, spec: RequestSpec) -> bool:
        """Return whether the request is for a group of this policy that has members."""
        group = spec.group_of("affinity")
        return group is not None and bool(group.hosts)

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        """Return whether the group is on this host or on none yet."""
        group = spec.group_of("affinity")
        return group is None or not group.hosts or host.name in group.hosts

    def reason(self, _host: HostState, spec: RequestSpec) -> str:
        """Return where the group is."""
        hosts = sorted(spec.instance_group.hosts) if spec.instance_group else []
        return f"the group is on {', '.join(hosts)}"


def anti_affinity(spec: RequestSpec) -> tuple[frozenset[str], int]:
    """Return the members of the request's anti-affinity group, and how many may share a host."""
    group = spec.group_of("anti-affinity")
    return (frozenset(), 1) if group is None else (group.members, _most(group))


def _most(group: InstanceGroup) -> int:
    return group.rules.get("max_server_per_host", 1)
