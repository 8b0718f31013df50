"""Agents as sources of what runs on hosts, and the option that names a file instead."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from compute_agent import errors

if TYPE_CHECKING:
    from oslo_config import cfg

    from compute_agent.drift.instances.agents import AgentsOnBus
    from compute_agent.drift.instances.instance import Instance
    from compute_agent.virt.driver import InstanceDevices

LOG = logging.getLogger(__name__)

STATUS_TIMEOUT = 10.0


def add_instances(parser: argparse.ArgumentParser) -> None:
    """Add the option that names a file of instances."""
    parser.add_argument(
        "--instances",
        type=Path,
        metavar="FILE",
        help="all existing instances and unfinished migrations, one uuid or one JSON object per "
        "line, instead of [compute_agent]instance_source",
    )


class DevicesFromAgents:
    """The agents as a source of the devices that guests have; without a bus an empty one."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf
        self._bus: AgentsOnBus | None = None

    def devices_of(self, instance: Instance) -> InstanceDevices | None:
        """Return the devices of a guest, `None` when they are not known."""
        if not self._conf.transport_url:
            return None
        from compute_agent.drift.instances.instance import devices_of

        if self._bus is None:
            from compute_agent.drift.instances.agents import AgentsOnBus

            self._bus = AgentsOnBus(self._conf)
        document = self._bus.devices(instance.host, instance.uuid)
        return None if document is None else devices_of(document)

    def close(self) -> None:
        """Leave the bus."""
        if self._bus is not None:
            self._bus.close()


def running_agent(conf: cfg.ConfigOpts, root: str) -> str | None:
    """Return the evidence that an agent reports this root provider now, if any.

    The agent of this machine is asked first; then the announcements on the bus are received, for a
    few of their periods if none names the host. When neither is possible, the reason goes to
    stderr.
    """
    from compute_agent.agent import local_socket

    path = conf.compute_agent.status_socket
    try:
        status = local_socket.ask(Path(path), "status", STATUS_TIMEOUT) if path else {"nodes": []}
        if any(node["uuid"] == root for node in status["nodes"]):
            return f"it answers on {path}"
    except local_socket.AgentNotRunning:
        LOG.debug("No agent runs on this machine.")
    except errors.ComputeAgentError as error:
        return f"an agent of this machine runs and may be it: {error}"
    if not conf.transport_url:
        _print_unknown("no message bus is configured ([DEFAULT]transport_url)")
        return None
    from compute_agent.drift.instances.agents import AgentsOnBus

    try:
        agents = AgentsOnBus(conf)
    except errors.InvalidConfiguration as error:
        _print_unknown(str(error))
        return None
    try:
        roots_of_host = agents.hosts([root])
    finally:
        agents.close()
    host = next((host for host, roots in roots_of_host.items() if root in roots), None)
    return None if host is None else f"agent {host} announces it on the message bus"


def _print_unknown(why: str) -> None:
    print(
        f"Whether the agent of this host runs is not known: {why.rstrip('.')}. If it does, it "
        "creates the host again: make sure that it is stopped.",
        file=sys.stderr,
    )
