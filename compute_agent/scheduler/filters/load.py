"""Hosts with little load, as their agents announce it."""

from __future__ import annotations

from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.filters.host_filter import HostFilter
from compute_agent.scheduler.host_state import HostState


class NumInstancesFilter(HostFilter):
    """At most `max_instances_per_host` instances; a host that announces no number passes."""

    def host_passes(self, host: HostState, _spec: RequestSpec) -> bool:
        """Return whether the host may have one more instance."""
        return _instances(host) < self.limit(host)

    def reason(self, host: HostState, _spec: RequestSpec) -> str:
        """Return how many instances the host has."""
        return f"has {_instances(host)} of at most {self.limit(host)} instances"

    def limit(self, _host: HostState) -> int:
        """Return the number of instances the host may have."""
        return self.options.max_instances_per_host


class IoOpsFilter(HostFilter):
    """At most `max_io_ops_per_host` builds, resizes and migrations under way."""

    def host_passes(self, host: HostState, _spec: RequestSpec) -> bool:
        """Return whether the host may begin one more."""
        return _busy(host) < self.limit(host)

    def reason(self, host: HostState, _spec: RequestSpec) -> str:
        """Return how many operations the host has under way."""
        return f"has {_busy(host)} of at most {self.limit(host)} operations under way"

    def limit(self, _host: HostState) -> int:
        """Return the number of operations the host may have under way."""
        return self.options.max_io_ops_per_host


def _instances(host: HostState) -> int:
    announcement = host.announcement
    return ((announcement.instances if announcement else None) or 0) + host.claimed_here


def _busy(host: HostState) -> int:
    announcement = host.announcement
    return (announcement.io_ops if announcement else 0) + host.claimed_here
