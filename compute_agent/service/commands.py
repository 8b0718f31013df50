"""What a running agent can be asked, over the bus, the local socket or by a signal."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from compute_agent import errors
from compute_agent.report.operations import describe
from compute_agent.service import state_dump
from compute_agent.state.ledger import ServiceState

if TYPE_CHECKING:
    from oslo_config import cfg

    from compute_agent.agent_parts import AgentParts
    from compute_agent.tracker.pass_schedule import PassSchedule
    from compute_agent.tracker.resource_tracker import ResourceTracker

LOG = logging.getLogger(__name__)

NODE_LIST = ""
"""Name under which looking for nodes is scheduled, as if it were the pass of a node."""
REPORT_TIMEOUT = 300.0
SERVICE_VERSION = 1
"""Rises when what an agent can do for a scheduler changes."""


class AgentCommands:
    """The questions and orders; each may come from any thread.

    :param wake: makes the loop of passes look at what is due.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        parts: AgentParts,
        tracker: ResourceTracker,
        schedule: PassSchedule,
        wake: Callable[[], None],
    ) -> None:
        self._conf = conf
        self._parts = parts
        self._tracker = tracker
        self._schedule = schedule
        self._wake = wake

    def status(self, node: str | None = None) -> dict[str, Any]:
        """Return the status document, with one node or all.

        :raises ComputeHostNotFound: the node is not managed here.
        """
        document = self._parts.board.document()
        if node is not None:
            self._check_node(node)
            document["nodes"] = [each for each in document["nodes"] if each["name"] == node]
        return document

    def report_now(self, node: str | None = None, wait: bool = True) -> dict[str, Any]:
        """Run a pass of one node, or of all, and return the status document.

        :param wait: return when the passes have ended, at most `REPORT_TIMEOUT` seconds later.
        :raises ComputeHostNotFound: the node is not managed here.
        """
        if node is not None:
            self._check_node(node)
        nodes = list(self._tracker.nodes()) if node is None else [node]
        for name in nodes or [NODE_LIST]:
            self._schedule.trigger("report", name)
        self._wake()
        if wait:
            for name in nodes:
                self._schedule.wait_for_pass(name, REPORT_TIMEOUT)
        return self.status(node)

    def plan(self, node: str) -> list[str]:
        """Return what a pass would change now, one line for each operation.

        :raises ComputeAgentError: it cannot be found out.
        """
        self._check_node(node)
        return [describe(operation) for operation in self._tracker.planned(node)]

    def list_instances(self, node: str | None = None) -> list[str]:
        """Return the uuids of the instances that run here.

        :raises ComputeHostNotFound: the node is not managed here.
        """
        if node is not None:
            self._check_node(node)
        return list(self._parts.driver.list_instance_uuids())

    def set_host_enabled(self, enabled: bool, reason: str = "") -> None:
        """Enable or disable the host, over restarts, and tell placement at once."""
        self._parts.ledger.set_service_state(ServiceState(enabled, "" if enabled else reason))
        LOG.info("The host is %s now. %s", "enabled" if enabled else "disabled", reason)
        self._schedule.trigger("enabled" if enabled else "disabled")
        self._wake()

    def announcement(self, sequence: int) -> dict[str, Any]:
        """Return what is announced on the bus."""
        document = self._parts.board.document()
        wanted = (
            *("uuid", "name", "enabled", "disabled_reason"),
            *("last_pass", "last_success", "reshape_pending"),
        )
        nested = self._conf.compute.enable_numa_reporting_to_placement
        same = {
            "instances": len(self._parts.driver.list_instance_uuids()),
            "layout": "nested" if nested else "flat",
        }
        return {
            "host": document["host"],
            "nodes": [{key: node[key] for key in wanted} | same for node in document["nodes"]],
            "service_version": SERVICE_VERSION,
            "placement_max_version": document["placement"]["max_version"],
            "seq": sequence,
        }

    def dump_state(self) -> None:
        """Write what is going on to stderr."""
        options = _Lines()
        self._conf.log_opt_values(options, logging.INFO)
        details = {
            "passes at work": self._schedule.running(),
            "seconds to the next pass": self._schedule.seconds_to_next(),
        }
        sys.stderr.write(state_dump.text(self._parts.board.document(), details, options.lines))
        sys.stderr.flush()

    def _check_node(self, node: str) -> None:
        if node not in self._tracker.nodes():
            raise errors.ComputeHostNotFound(
                f"Node {node} is not managed by this agent; it manages: "
                f"{', '.join(self._tracker.nodes()) or 'none yet'}."
            )


def service_state(conf: cfg.ConfigOpts, parts: AgentParts) -> ServiceState:
    """Return whether the host may be scheduled to."""
    return parts.ledger.service_state(default_enabled=conf.enable_new_services)


class _Lines:
    """A logger that keeps its lines, for the one method of oslo.config that lists values."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def log(self, _level: int, text: str, *values: object) -> None:
        self.lines.append(text % values)
