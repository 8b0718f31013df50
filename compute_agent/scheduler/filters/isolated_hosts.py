"""Images that have hosts of their own."""

from __future__ import annotations

from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.filters.host_filter import HostFilter
from compute_agent.scheduler.host_state import HostState


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
