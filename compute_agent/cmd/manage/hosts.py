"""The commands about the tree of one host: rename, delete-host and adopt."""

from __future__ import annotations

import argparse
import logging
import sys
from contextlib import closing
from functools import partial
from pathlib import Path

from msgspec import to_builtins
from oslo_config import cfg

from compute_agent import errors
from compute_agent.agent.local_socket import AgentNotRunning
from compute_agent.cmd.agent.running import ask_agent
from compute_agent.cmd.manage.options import configuration, report_client
from compute_agent.cmd.output import show
from compute_agent.drift.instances.agents import AgentsOnBus
from compute_agent.drift.wording import count_of
from compute_agent.manage import hosts
from compute_agent.programs.exit_status import Exit
from compute_agent.state import identity

LOG = logging.getLogger(__name__)


def rename(namespace: argparse.Namespace) -> int:
    """Rename the tree of a host."""
    conf = configuration(namespace)
    renamings = hosts.rename(
        report_client(namespace, conf), namespace.old, namespace.new, dry_run=namespace.dry_run
    )
    verb = "would be" if namespace.dry_run else "is"
    show(
        namespace,
        {"dry_run": namespace.dry_run, "renamed": to_builtins(renamings)},
        *(f"{renaming.uuid}: {renaming.old} {verb} {renaming.new}" for renaming in renamings),
    )
    return Exit.WOULD_CHANGE if namespace.dry_run else Exit.FINE


def delete(namespace: argparse.Namespace) -> int:
    """Delete the tree of a host."""
    conf = configuration(namespace)
    host = hosts.delete_host(
        report_client(namespace, conf),
        namespace.name,
        is_evacuated=namespace.evacuated,
        dry_run=namespace.dry_run,
        running_agent=(lambda _root: None) if namespace.force else partial(running_agent, conf),
    )
    verb = "would be deleted" if namespace.dry_run else "deleted"
    providers = count_of(len(host.providers), "resource provider")
    document = {"dry_run": namespace.dry_run, "host": to_builtins(host)}
    show(namespace, document, f"{host.name} ({host.uuid}): {providers} {verb}")
    return Exit.WOULD_CHANGE if namespace.dry_run else Exit.FINE


def adopt(namespace: argparse.Namespace) -> int:
    """Take the identity of a provider that exists."""
    conf = configuration(namespace)
    state_path = Path(conf.state_path)
    name = hosts.adopt(
        report_client(namespace, conf),
        state_path,
        namespace.uuid,
        places=identity.directories(conf.config_file or (), state_path),
        dry_run=namespace.dry_run,
    )
    verb = "would be" if namespace.dry_run else "is"
    document = {"dry_run": namespace.dry_run, "uuid": namespace.uuid, "name": name}
    show(namespace, document, f"this host {verb} {namespace.uuid} ({name}) from now on")
    return Exit.WOULD_CHANGE if namespace.dry_run else Exit.FINE


def running_agent(conf: cfg.ConfigOpts, root: str) -> str | None:
    """Return the evidence that an agent reports this root provider now, if any.

    The agent of this machine is asked first; then the announcements on the bus are received, for a
    few of their periods if none names the host. When neither is possible, the reason goes to
    stderr.
    """
    path = conf.compute_agent.status_socket
    try:
        status = ask_agent(conf, "status")
        if any(node["uuid"] == root for node in status["nodes"]):
            return f"it answers on {path}"
    except AgentNotRunning:
        LOG.debug("No agent runs on this machine.")
    except errors.ComputeAgentError as error:
        return f"an agent of this machine runs and may be it: {error}"
    if not conf.transport_url:
        _print_unknown("no message bus is configured ([DEFAULT]transport_url)")
        return None

    try:
        agents = AgentsOnBus(conf)
    except errors.InvalidConfiguration as error:
        _print_unknown(str(error))
        return None
    with closing(agents):
        roots_of_host = agents.hosts([root])
    host = next((host for host, roots in roots_of_host.items() if root in roots), None)
    return None if host is None else f"agent {host} announces it on the message bus"


def _print_unknown(why: str) -> None:
    print(
        f"Whether the agent of this host runs is not known: {why.rstrip('.')}. If it does, it "
        "creates the host again: make sure that it is stopped.",
        file=sys.stderr,
    )
