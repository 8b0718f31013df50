"""Server groups: members on one host, or on different ones."""

from __future__ import annotations

from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.filters.host_filter import HostFilter
from compute_agent.scheduler.host_state import HostState


class ServerGroupAntiAffinityFilter(HostFilter):
    """Policy ``anti-affinity``: at most ``max_server_per_host`` (1) members on a host."""

    RUN_ON_REBUILD = False

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        """Return whether the host has room for one more member."""
        group = spec.instance_group
        if group is None or group.policy != "anti-affinity":
            return True
        most = group.rules.get("max_server_per_host", 1)
        members = len(host.instances & group.members) + host.claimed_here
        if host.name in group.hosts:
            members = max(members, 1)
        return members < most


class ServerGroupAffinityFilter(HostFilter):
    """Policy ``affinity``: where the group has members, only their hosts."""

    RUN_ON_REBUILD = False

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        """Return whether the group is on this host or on none yet."""
        group = spec.instance_group
        if group is None or group.policy != "affinity":
            return True
        return not group.hosts or host.name in group.hosts
