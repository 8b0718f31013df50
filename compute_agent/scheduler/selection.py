"""Selections, which a caller gets: the host chosen for an instance, or an alternate."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from compute_agent.placement.transports.transport import Microversion
from compute_agent.scheduler.candidates import Candidate
from compute_agent.scheduler.host_state import NO_CELL, HostState


@dataclass(frozen=True, slots=True)
class Selection:
    """One host for one instance, with the allocation claimed or, for an alternate, to claim."""

    compute_node_uuid: str
    service_host: str
    nodename: str
    allocation_request: str
    allocation_request_version: str
    availability_zone: str | None = None
    cell_uuid: str = NO_CELL
    limits: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON types, under the names of the fields."""
        return {
            "compute_node_uuid": self.compute_node_uuid,
            "service_host": self.service_host,
            "nodename": self.nodename,
            "cell_uuid": self.cell_uuid,
            "limits": self.limits,
            "allocation_request": self.allocation_request,
            "allocation_request_version": self.allocation_request_version,
            "availability_zone": self.availability_zone,
        }


def selection_of(host: HostState, candidate: Candidate, microversion: Microversion) -> Selection:
    """Return the selection of a candidate on its host."""
    zones = sorted(host.metadata("availability_zone"))
    announcement = host.announcement
    return Selection(
        compute_node_uuid=host.uuid,
        service_host=announcement.host if announcement else host.name,
        nodename=host.name,
        allocation_request=json.dumps(candidate.as_request(), sort_keys=True),
        allocation_request_version=f"{microversion[0]}.{microversion[1]}",
        availability_zone=zones[0] if zones else None,
        cell_uuid=host.cell,
        limits=_limits(host),
    )


def _limits(host: HostState) -> dict[str, Any]:
    """Return what the host may be filled up to, for agents that check it themselves."""
    limits = {"memory_mb": host.capacity("MEMORY_MB"), "disk_gb": host.capacity("DISK_GB")}
    return {name: amount for name, amount in limits.items() if amount}
