"""Filter that passes every host."""

from __future__ import annotations

from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.filters.host_filter import HostFilter
from compute_agent.scheduler.host_state import HostState


class AllHostsFilter(HostFilter):
    """Pass every host, for clouds where placement decides alone."""

    run_filter_once_per_request = True

    def host_passes(self, _host: HostState, _spec: RequestSpec) -> bool:
        """Return True."""
        return True
