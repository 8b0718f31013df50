"""Readings of nodes, of which a pass makes one."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from compute_agent.discovery.facts import HostTopology
from compute_agent.virt.available_resource import available_resource
from compute_agent.virt.layout import LayoutOptions


@dataclass(frozen=True)
class NodeReading:
    """A node as it was read, and the options that applied then."""

    topology: HostTopology
    options: LayoutOptions

    @cached_property
    def resources(self) -> dict[str, Any]:
        """What `available_resource` makes of it."""
        return available_resource(self.topology, self.options)


class ReadingsOfPass(threading.local):
    """What the pass of this thread has read, by what it is; None outside a pass.

    `was_asked`: whether it asked what guests and consumers hold, which no reading shows.
    """

    by_subject: dict[str, Any] | None = None
    was_asked: bool = False
