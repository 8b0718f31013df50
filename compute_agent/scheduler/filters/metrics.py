"""Hosts that announce the metrics which the metrics weigher needs."""

from __future__ import annotations

from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.filters.host_filter import HostFilter
from compute_agent.scheduler.host_state import HostState


class MetricsFilter(HostFilter):
    """Pass hosts that announce every metric of ``[metrics]weight_setting``."""

    run_filter_once_per_request = True

    def host_passes(self, host: HostState, _spec: RequestSpec) -> bool:
        """Return whether no metric is missing."""
        return self.options.metrics <= host.metrics.keys()
