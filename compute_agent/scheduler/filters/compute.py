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

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        """Return whether the host is enabled and alive."""
        return not self.reason(host, spec)

    def reason(self, host: HostState, _spec: RequestSpec) -> str:
        """Return why the host cannot be used now."""
        announcement = host.announcement
        if not host.alive:
            return "its agent is silent"
        if announcement is not None and not announcement.enabled:
            return "disabled, as its agent announces"
        root = host.providers.get(host.uuid)
        if root is not None and COMPUTE_STATUS_DISABLED in root.traits:
            return "disabled in placement"
        return ""
