"""The command `host list`: the hosts of the fleet, once or as they change."""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from oslo_config import cfg

from compute_agent import errors
from compute_agent.cmd.manage import fleet as fleet_commands
from compute_agent.cmd.manage.options import BadArgument, configuration
from compute_agent.cmd.output import chosen_cells, chosen_columns, new_console, show_rows, table
from compute_agent.cmd.progress import progress_bars
from compute_agent.cmd.screen import Screen
from compute_agent.cmd.trees.form import amount_text
from compute_agent.drift.instances.agents import AgentsOnBus
from compute_agent.drift.wording import count_of
from compute_agent.manage import fleet
from compute_agent.manage.fleet import FleetHost
from compute_agent.manage.followed_fleet import FollowedAgents, FollowedTrees
from compute_agent.manage.tree_reading import ProviderLines
from compute_agent.placement.api import PlacementApi
from compute_agent.programs.exit_status import Exit

_SORTED_BY: Final[Mapping[str, Callable[[FleetHost], object]]] = {
    "name": lambda host: host.name,
    "agent": lambda host: (host.agent != "silent", host.name),
    "trouble": lambda host: (-len(host.trouble), host.name),
    "used": lambda host: (-_share(host), host.name),
}
_COLUMNS: Final = ("host", "agent", "bus", "enabled", "providers", "used/capacity", "trouble")
_WATCH_TIMEOUT: Final = 10
"""Seconds after which `--watch` says that placement does not answer, unless another is given."""


def list_hosts(namespace: argparse.Namespace) -> int:
    """List the hosts of the fleet."""
    if namespace.interval is not None and not namespace.watch:
        raise BadArgument("--interval has no effect without --watch: add --watch, or leave it out.")
    if namespace.json:
        namespace.format = "json"
    chosen_columns(namespace, _COLUMNS)
    if namespace.watch and namespace.request_timeout is None:
        namespace.request_timeout = _WATCH_TIMEOUT
    conf = configuration(namespace)
    placement = fleet_commands.placement_api(namespace, conf)
    # a watch waits for a broker that goes away, and needs one to begin with
    with fleet_commands.agents_on_bus(conf, may_be_away=not namespace.watch) as agents:
        if namespace.watch:
            _watch(namespace, conf, placement, agents)
            return Exit.FINE
        hosts = _hosts(namespace, conf, placement, agents)
    documents = [fleet_commands.host_document(host) for host in hosts]
    show_rows(namespace, _COLUMNS, _rows(namespace, hosts), documents)
    return Exit.FINE


def _hosts(
    namespace: argparse.Namespace,
    conf: cfg.ConfigOpts,
    placement: PlacementApi,
    agents: AgentsOnBus | None,
) -> list[FleetHost]:
    roots = [uuid for uuid, _ in fleet.roots(placement, namespace.name, namespace.member_of)]
    heard_agents = fleet_commands.heard_agents(conf, agents, roots)
    with progress_bars() as bars:
        progress = partial(bars.update, "reading the hosts")
        trees = fleet.trees(placement, roots, progress=progress)
        return _chosen_hosts(namespace, placement, trees, heard_agents)


def _chosen_hosts(
    namespace: argparse.Namespace,
    placement: PlacementApi,
    trees: Iterable[Sequence[ProviderLines]],
    heard_agents: fleet.HeardAgents | None,
) -> list[FleetHost]:
    conditions = [trait for text in namespace.required for trait in text.split(",")]
    chosen_trees = (tree for tree in trees if fleet.has_traits(tree, conditions))
    hosts = fleet.described(
        placement, chosen_trees, heard_agents, counts_consumers=not namespace.watch
    )
    return sorted(
        (host for host in hosts if host.trouble or not namespace.troubled),
        key=_SORTED_BY[namespace.sort],  # type: ignore[arg-type]
    )


def _watch(
    namespace: argparse.Namespace,
    conf: cfg.ConfigOpts,
    placement: PlacementApi,
    agents: AgentsOnBus | None,
) -> None:
    look = _Watch(namespace, conf, placement, agents)
    with Screen() as screen:
        lines: list[str] = []
        away = ""
        while True:
            try:
                hosts = look.hosts()
            except errors.PlacementError as error:
                away = away or f"{_now()}  Placement cannot be read, and is asked again. {error}"
                screen.show(lines if screen.is_terminal else (), [away])
            else:
                away = ""
                lines = list(_lines(namespace, hosts))
                screen.show(lines, look.notices)
            if screen.is_left(namespace.interval or 2):
                break


class _Watch:
    """What `--watch` looks at.

    :ivar notices: what was not known at the last look.
    """

    def __init__(
        self,
        namespace: argparse.Namespace,
        conf: cfg.ConfigOpts,
        placement: PlacementApi,
        agents: AgentsOnBus | None,
    ) -> None:

        self._namespace = namespace
        self._conf = conf
        self._placement = placement
        self._agents = None if agents is None else FollowedAgents(agents)
        self._trees = FollowedTrees(placement)
        self._last_heard: dict[str, float] | None = None
        self.notices: list[str] = []

    def hosts(self) -> list[FleetHost]:
        """Return the hosts to be shown as they are now.

        :raises PlacementError: placement cannot be asked.
        """
        heard_agents = None if self._agents is None else self._look(self._agents)
        asked = self._namespace
        roots = [uuid for uuid, _ in fleet.roots(self._placement, asked.name, asked.member_of)]
        return _chosen_hosts(asked, self._placement, self._trees.current(roots), heard_agents)

    def _look(self, agents: FollowedAgents) -> fleet.HeardAgents:
        heard_agents = agents.look()
        if not agents.is_bus_away:
            self.notices = []
        elif not self.notices:
            self.notices = [
                f"{_now()}  The message bus does not answer, so whether agents run is not known."
            ]
        if self._last_heard is None and heard_agents.is_complete:
            self._last_heard = fleet_commands.last_heard(self._conf)
        return dataclasses.replace(
            heard_agents, last_heard={**(self._last_heard or {}), **heard_agents.last_heard}
        )


def _lines(namespace: argparse.Namespace, hosts: Sequence[FleetHost]) -> Iterator[str]:
    if namespace.format == "json":
        yield json.dumps([fleet_commands.host_document(host) for host in hosts])
        return
    rows = _rows(namespace, hosts)
    if namespace.format == "value":
        yield from map(" ".join, chosen_cells(namespace, _COLUMNS, rows))
        return
    agents = Counter(host.agent for host in hosts)
    parts = [f"{count} {agent}" for agent, count in sorted(agents.items())]
    disabled_count = sum(not host.is_enabled for host in hosts)
    fleet_size = count_of(len(hosts), "host")
    yield f"{_now()}  {fleet_size}: agents {', '.join(parts)}; {disabled_count} disabled"
    console = new_console()
    with console.capture() as capture:
        console.print(table(namespace, _COLUMNS, rows))
    yield from capture.get().splitlines()


def _now() -> str:
    return time.strftime("%H:%M:%S")


def _rows(namespace: argparse.Namespace, hosts: Sequence[FleetHost]) -> list[Sequence[object]]:
    return [_row(namespace, host) for host in hosts]


def _row(namespace: argparse.Namespace, host: FleetHost) -> Sequence[object]:
    amounts = [
        f"{name} {amount_text(name, *amount, in_bytes=namespace.in_bytes)}"
        for name, amount in host.amounts.items()
        if namespace.resource_class in (None, name)
    ]
    if host.consumers:
        amounts.append(f"by {count_of(host.consumers, 'consumer')}")
    return (
        host.name,
        fleet_commands.since_text(host.agent, host.silent_since),
        fleet_commands.since_text(host.bus, None if host.bus == "up" else host.bus_since),
        "yes" if host.is_enabled else f"no: {host.reason}" if host.reason else "no",
        host.providers,
        "  ".join(amounts),
        "; ".join(host.trouble),
    )


def _share(host: FleetHost) -> float:
    """Return the largest used part of a class of the host."""
    return max((used / capacity for used, capacity in host.amounts.values() if capacity), default=0)
