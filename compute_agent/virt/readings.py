"""Readings of nodes, and what was made of the last one: a node that is as it was costs nothing."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from compute_agent.discovery.facts import HostTopology
from compute_agent.provider_tree import ProviderTree
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

    ``was_asked``: whether it asked what guests and consumers hold, which no reading shows.
    """

    by_subject: dict[str, Any] | None = None
    was_asked: bool = False


class LastReadings:
    """The last reading of each node, and the last edit of its tree that followed from it alone."""

    def __init__(self) -> None:
        self._readings: dict[str, NodeReading] = {}
        self._edits: dict[str, tuple[NodeReading, ProviderTree, ProviderTree]] = {}

    def same(self, nodename: str, reading: NodeReading) -> NodeReading:
        """Return the last reading where the node is as it was then, else this one."""
        last = self._readings.get(nodename)
        if last == reading:
            return last
        self._readings[nodename] = reading
        return reading

    def repeat(self, nodename: str, reading: NodeReading, tree: ProviderTree) -> bool:
        """Edit a tree as the last one was, if that was the same; return whether it was."""
        known_reading, before, after = self._edits.get(nodename, (None, None, tree))
        if known_reading is not reading or before != tree:
            self._edits.pop(nodename, None)
            return False
        tree.take_content_of(after)
        return True

    def record_edit(
        self, nodename: str, reading: NodeReading, before: ProviderTree, after: ProviderTree
    ) -> None:
        """Take in an edit that followed from the reading alone."""
        self._edits[nodename] = (reading, before, after.snapshot())
