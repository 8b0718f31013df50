"""The commands about one host of the fleet: show, enable, disable, report."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import Any

from msgspec import to_builtins
from oslo_config import cfg
from rich.table import Table

from compute_agent.cmd import output
from compute_agent.cmd.manage.options import BadArgument, configuration, report_client
from compute_agent.cmd.output import new_console, new_table
from compute_agent.cmd.trees.drawing import drawing
from compute_agent.cmd.trees.form import form_of, given_form_options
from compute_agent.drift.instances.agents import AgentsOnBus, BusUnavailable
from compute_agent.drift.wording import allocations
from compute_agent.manage import drain, fleet, hosts
from compute_agent.manage.fleet import FleetHost, HostSwitch, WouldBeUndone
from compute_agent.manage.tree_reading import ProviderLines, existing_tree
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
    placement = report_client(namespace, conf).placement
    uuid, _ = hosts.root_of(placement, namespace.name)
    with agents_on_bus(conf, may_be_away=True) as agents:
        agents_heard = heard_agents(conf, agents, [uuid])
    tree = existing_tree(placement.connection, uuid)
    [host] = fleet.described(placement, [tree], agents_heard)
    use = drain.use_of(placement, uuid)
    consumers = {} if use is None else {h.consumer: h.held_amounts for h in use.holders}
    if namespace.json:
        document = host_document(host) | {
            "tree": to_builtins(tree),
            "consumers": consumers,
        }
        output.print_json(document)
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
    placement = report_client(namespace, conf).placement
    uuid, name = root = hosts.root_of(placement, namespace.name)
    verb = "enabled" if is_enabled else "disabled"
    reason = "" if is_enabled else namespace.reason
    with agents_on_bus(conf, may_be_away=True) as agents:
        switch = HostSwitch.of(placement, agents, root)
        changes = switch.would_change(is_enabled=is_enabled, reason=reason)
        if changes:
            order(namespace, switch, is_enabled=is_enabled, reason=reason)
    by = switch.by
    line = f"{name} ({uuid}) is {verb} already, {by}"
    if changes:
        line = f"{name} ({uuid}) {'would be' if namespace.dry_run else 'is'} {verb} {by}"
    document = {"uuid": uuid, "name": name, "enabled": is_enabled, "by": by, "changes": changes}
    output.show(namespace, {"dry_run": namespace.dry_run} | document, line)
    return Exit.WOULD_CHANGE if namespace.dry_run and changes else Exit.FINE


def report(namespace: argparse.Namespace) -> int:
    """Have the agent of a host report it now."""
    conf = configuration(namespace)
    placement = report_client(namespace, conf).placement
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
            output.show(namespace, document, text)
            return Exit.WOULD_CHANGE
        status = agents.ask(node["service"], "report_now", node=node["name"], wait=True)
    output.show(namespace, status, *map(_pass_text, status["nodes"]))
    return Exit.FINE


def _pass_text(node: Mapping[str, Any]) -> str:
    last = node["last_pass"]
    outcome = f"{last['outcome']}, {last['changes']} change(s)" if last else "no pass yet"
    return f"{node['name']}: {outcome}"


def order(
    namespace: argparse.Namespace, switch: HostSwitch, *, is_enabled: bool, reason: str = ""
) -> None:
    """Enable or disable a host; a look beforehand only says whether that would be refused.

    :raises WouldBeUndone: the agent of the host would undo it.
    """
    try:
        switch.check_not_undone(is_enabled=is_enabled)
    except WouldBeUndone as error:
        if not namespace.dry_run:
            raise
        print(f"Without --dry-run this is refused. {error}", file=sys.stderr)
    if not namespace.dry_run:
        switch.set(is_enabled=is_enabled, reason=reason)


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
    with closing(agents):
        yield agents


def heard_agents(
    conf: cfg.ConfigOpts, agents: AgentsOnBus | None, roots: Sequence[str]
) -> fleet.HeardAgents | None:
    """Listen until all these hosts were announced, or those that were not are silent.

    One that a running scheduler has not heard either is silent after one period; where no scheduler
    has heard of it, all of them are waited for. None is asked before the end where listening on
    takes no longer than its answer may.
    """
    if agents is None:
        return None
    rest = agents.patience - agents.one_period
    is_short = rest <= running_scheduler.ANNOUNCEMENTS_TIMEOUT
    nodes = agents.nodes(roots, agents.patience if is_short else agents.one_period)
    silent_roots = [root for root in roots if root not in nodes]
    times = last_heard(conf) if silent_roots else {}
    oldest_live = time.time() - agents.patience
    unsure = [root for root in silent_roots if times.get(root, oldest_live) >= oldest_live]
    if unsure and not is_short:
        nodes |= agents.nodes(unsure, rest)
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
    document: dict[str, Any] = to_builtins(host)
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
    rows = [
        (consumer, allocations(held_amounts, names.__getitem__))
        for consumer, held_amounts in sorted(consumers.items())
    ]
    return new_table(("consumer", "holds"), rows)
