"""Hosts that are enabled and alive."""

from __future__ import annotations

from compute_agent.provider_tree.trait_names import COMPUTE_STATUS_DISABLED
from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.filters.host_filter import HostFilter
from compute_agent.scheduler.host_state import HostState


class ComputeFilter(HostFilter):
    """Pass hosts that no operator disabled and whose agent announced itself lately.

    Without a bus every host counts as alive; the trait that marks a disabled host still holds.
    """

    def host_passes(self, host: HostState, _spec: RequestSpec) -> bool:
        """Return whether the host is enabled and alive."""
        if any(
            COMPUTE_STATUS_DISABLED in provider.traits
            for provider in host.tree
            if provider.uuid == host.uuid
        ):
            return False
        announced = host.announcement
        return host.alive and (announced is None or announced.enabled)
