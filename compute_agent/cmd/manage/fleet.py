"""The commands about one host of the fleet: show, enable, disable, report."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime

from oslo_config import cfg
from rich.table import Table

from compute_agent.cmd.manage.options import BadArgument, configuration, transport
from compute_agent.cmd.output import new_console, new_table
from compute_agent.cmd.trees.drawing import drawing
from compute_agent.cmd.trees.form import form_of, given_form_options
from compute_agent.drift.instances.agents import AgentsOnBus, BusUnavailable
from compute_agent.drift.wording import resources
from compute_agent.manage import fleet, hosts
from compute_agent.manage.fleet import FleetHost
from compute_agent.manage.tree_reading import ProviderLines, existing_tree
from compute_agent.placement.api import PlacementApi
from compute_agent.placement.connection import Connection
from compute_agent.programs.exit_status import Exit
from compute_agent.scheduler.bus import running_scheduler
from compute_agent.scheduler.errors import NoSchedulerAnswers

LOG = logging.getLogger(__name__)


def show(namespace: argparse.Namespace) -> None:
    """Show the tree of a host, its agent and its consumers."""
    if namespace.json and (given_options := given_form_options(namespace)):
        raise BadArgument(
            f"{', '.join(given_options)} cannot be combined with --json, which has all"
        )
    conf = configuration(namespace)
    placement = placement_api(namespace, conf)
    uuid, _ = hosts.root_of(placement, namespace.name)
    with agents_on_bus(conf, may_be_away=True) as agents:
        agents_heard = heard_agents(conf, agents, [uuid])
    tree = existing_tree(placement.connection, uuid)
    [host] = fleet.described(placement, [tree], agents_heard)
    consumers = fleet.consumers(placement, tree)
    if namespace.json:
        document = host_document(host) | {
            "tree": [asdict(provider) for provider in tree],
            "consumers": consumers,
        }
        print(json.dumps(document, indent=2))
        return
    console = new_console()
    console.print(_summary(host))
    console.print(drawing(tree, form_of(namespace)))
    console.print(_consumer_table(consumers, tree))


def enable(namespace: argparse.Namespace) -> int:
    """Allow new instances on a host."""
    return _set_enabled(namespace, is_enabled=True)


def disable(namespace: argparse.Namespace) -> int:
    """Allow no new instances on a host."""
    return _set_enabled(namespace, is_enabled=False)


def _set_enabled(namespace: argparse.Namespace, *, is_enabled: bool) -> int:
    conf = configuration(namespace)
    placement = placement_api(namespace, conf)
    uuid, name = root = hosts.root_of(placement, namespace.name)
    verb = "enabled" if is_enabled else "disabled"
    reason = "" if is_enabled else namespace.reason
    with agents_on_bus(conf, may_be_away=True) as agents:
        switch = fleet.HostSwitch.of(placement, agents, root)
        changes = switch.would_change(is_enabled=is_enabled, reason=reason)
        if changes:
            switch.check_not_undone(is_enabled=is_enabled)
        if not namespace.dry_run:
            switch.set(is_enabled=is_enabled, reason=reason)
    by = switch.by
    if namespace.json:
        document = {"uuid": uuid, "name": name, "enabled": is_enabled, "by": by, "changes": changes}
        print(json.dumps({"dry_run": namespace.dry_run} | document))
    elif not changes:
        print(f"{name} ({uuid}) is {verb} already, {by}")
    else:
        print(f"{name} ({uuid}) {'would be' if namespace.dry_run else 'is'} {verb} {by}")
    return Exit.WOULD_CHANGE if namespace.dry_run and changes else Exit.FINE


def report(namespace: argparse.Namespace) -> int:
    """Have the agent of a host report it now."""
    conf = configuration(namespace)
    placement = placement_api(namespace, conf)
    uuid, name = hosts.root_of(placement, namespace.name)
    with agents_on_bus(conf) as agents:
        node = agents.nodes([uuid]).get(uuid) if agents is not None else None
        if agents is None or node is None:
            raise hosts.CommandRefused(
                f"The agent of host {name} did not announce itself, so it cannot be asked for a "
                "pass. Check it on that host: `systemctl status compute-agent`."
            )
        if namespace.dry_run:
            service = node["service"]
            document = {"dry_run": True, "uuid": uuid, "name": name, "service": service}
            text = f"agent {service} would be asked for a pass of {name}"
            print(json.dumps(document) if namespace.json else text)
            return Exit.WOULD_CHANGE
        status = agents.ask(node["service"], "report_now", node=node["name"], wait=True)
    if namespace.json:
        print(json.dumps(status, indent=2))
        return Exit.FINE
    for reported_node in status["nodes"]:
        last = reported_node["last_pass"]
        print(
            f"{reported_node['name']}: {last['outcome']}, {last['changes']} change(s)"
            if last
            else f"{reported_node['name']}: no pass yet"
        )
    return Exit.FINE


def placement_api(namespace: argparse.Namespace, conf: cfg.ConfigOpts) -> PlacementApi:
    """Return the calls of placement, which answers.

    :raises PlacementError: it cannot be used.
    """
    use = conf.compute_agent.use_placement_extensions == "auto"
    api = PlacementApi(Connection(transport(namespace, conf), use_extensions=use))
    api.connection.versions()
    return api


@contextmanager
def agents_on_bus(
    conf: cfg.ConfigOpts, *, may_be_away: bool = False
) -> Iterator[AgentsOnBus | None]:
    """Yield the agents on the bus; None where there is no bus, which stderr says.

    :param may_be_away: a broker that cannot be used is as none.
    :raises BusUnavailable: it cannot be used, and may not be away.
    """
    if not conf.transport_url:
        print(
            "No message bus is configured ([DEFAULT]transport_url), so agents are known only by "
            "what placement heard of them.",
            file=sys.stderr,
        )
        yield None
        return

    try:
        agents = AgentsOnBus(conf)
    except BusUnavailable as error:
        if not may_be_away:
            raise
        print(f"{error} Agents are known only by what placement heard of them.", file=sys.stderr)
        yield None
        return
    try:
        yield agents
    finally:
        agents.close()


def heard_agents(
    conf: cfg.ConfigOpts, agents: AgentsOnBus | None, roots: Sequence[str]
) -> fleet.HeardAgents | None:
    """Listen until all these hosts were announced, or those that were not are silent.

    One that a running scheduler has not heard either is silent after one period; where no scheduler
    has heard of it, all of them are waited for.
    """
    if agents is None:
        return None
    nodes = agents.nodes(roots, agents.one_period)
    silent_roots = [root for root in roots if root not in nodes]
    times = last_heard(conf) if silent_roots else {}
    oldest_live = time.time() - agents.patience
    if unsure := [root for root in silent_roots if times.get(root, oldest_live) >= oldest_live]:
        nodes |= agents.nodes(unsure, agents.patience - agents.one_period)
    return fleet.HeardAgents(nodes, times)


def last_heard(conf: cfg.ConfigOpts) -> dict[str, float]:
    """Return when hosts were heard last by a running scheduler, by root, in seconds since 1970.

    None where no scheduler answers: then it is not known since when a host is silent.
    """
    try:
        announcements = running_scheduler.announcements(conf)
        announced_states = announcements.all()
    except NoSchedulerAnswers as error:
        LOG.info("The times at which agents were last heard are unknown: %s", error)
        return {}
    now = time.time()
    return {root: now - announcements.age(announced_states[root]) for root in announced_states}


def since_text(state: str, since: float | None) -> str:
    """Return a state, and since when it is so, where that is known."""
    if since is None:
        return state
    start = datetime.fromtimestamp(since).astimezone()
    is_today = start.date() == datetime.now().astimezone().date()
    return f"{state} since {start:{'%H:%M:%S' if is_today else '%Y-%m-%d %H:%M'}}"


def host_document(host: FleetHost) -> dict[str, object]:
    """Return a host as JSON shows it."""
    document = asdict(host)
    for field in ("silent_since", "bus_since"):
        since = document[field]
        document[field] = since and datetime.fromtimestamp(round(since), UTC).isoformat()
    document["amounts"] = {
        resource_class: {"used": used, "capacity": capacity}
        for resource_class, (used, capacity) in host.amounts.items()
    }
    return document


def _summary(host: FleetHost) -> str:
    state = "enabled" if host.is_enabled else "disabled"
    reason = f" ({host.reason})" if host.reason else ""
    bus = since_text(host.bus, None if host.bus == fleet.UP else host.bus_since)
    agent = since_text(host.agent, host.silent_since)
    lines = [f"agent {agent}, message bus {bus}, {state}{reason}"]
    lines += [f"  {sentence}" for sentence in host.trouble]
    return "\n".join(lines)


def _consumer_table(
    consumers: Mapping[str, Mapping[str, Mapping[str, int]]], tree: Sequence[ProviderLines]
) -> Table | str:
    if not consumers:
        return "nobody holds anything of it"
    names = {provider.uuid: provider.name for provider in tree}
    table = new_table("consumer", "holds")
    for consumer, held_amounts in sorted(consumers.items()):
        parts = [
            f"{resources(amounts)} of {names[provider]}"
            for provider, amounts in held_amounts.items()
        ]
        table.add_row(consumer, "; ".join(parts))
    return table
