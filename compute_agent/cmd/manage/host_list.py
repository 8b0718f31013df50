"""The command `host list`: the hosts of the fleet, once or as they change."""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from msgspec.structs import replace
from oslo_config import cfg

from compute_agent import errors
from compute_agent.cmd.manage import fleet as fleet_commands
from compute_agent.cmd.manage.options import BadArgument, configuration, report_client
from compute_agent.cmd.output import (
    chosen_cells,
    chosen_columns,
    chosen_table,
    new_console,
    show_rows,
)
from compute_agent.cmd.screen import Screen, looks, now, progress_bars
from compute_agent.cmd.trees.form import amount_text
from compute_agent.drift.instances.agents import AgentsOnBus
from compute_agent.drift.wording import count_of
from compute_agent.manage import fleet
from compute_agent.manage.fleet import FleetHost
from compute_agent.manage.tree_reading import ProviderLines
from compute_agent.placement.api import PlacementApi
from compute_agent.placement.changes import ChangeFeed
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
    placement = report_client(namespace, conf).placement
    # a watch waits for a broker that goes away, and needs one to begin with
    with fleet_commands.agents_on_bus(conf, may_be_away=not namespace.watch) as agents:
        if namespace.watch:
            _watch(namespace, _Watch(namespace, conf, placement, agents))
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


def _watch(namespace: argparse.Namespace, watch: _Watch) -> None:
    lines: list[str] = []
    with Screen() as screen:

        def say(notice: str) -> None:
            screen.show(lines if screen.is_terminal else (), [notice])

        for hosts in looks(watch.hosts, screen.is_left, namespace.interval or 2, say):
            lines = list(_lines(namespace, hosts))
            screen.show(lines, watch.notices)


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
                f"{now()}  The message bus does not answer, so whether agents run is not known."
            ]
        if self._last_heard is None and heard_agents.is_complete:
            self._last_heard = fleet_commands.last_heard(self._conf)
        return replace(
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
    yield f"{now()}  {fleet_size}: agents {', '.join(parts)}; {disabled_count} disabled"
    console = new_console()
    with console.capture() as capture:
        console.print(chosen_table(namespace, _COLUMNS, rows))
    yield from capture.get().splitlines()


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


class FollowedTrees:
    """Trees of placement, of which only those are read again that changed.

    Where placement has no feed of changes, or has deleted some since, all are read.
    """

    def __init__(self, placement: PlacementApi) -> None:
        self._placement = placement
        self._feed = ChangeFeed(placement.connection)
        self._after: int | None = None
        self._trees: dict[str, tuple[ProviderLines, ...]] = {}

    def current(self, roots: Sequence[str]) -> list[tuple[ProviderLines, ...]]:
        """Return the trees of these roots as they are now, without those that are gone.

        :raises PlacementError: placement cannot be asked; the next call goes on from here.
        """
        changed_roots, after = self._changed_roots()
        stale_roots = [
            root
            for root in roots
            if changed_roots is None or root in changed_roots or root not in self._trees
        ]
        read_trees = {tree[0].uuid: tree for tree in fleet.trees(self._placement, stale_roots)}
        known_trees = {
            root: tree for root, tree in self._trees.items() if root not in stale_roots
        } | read_trees
        self._trees = {root: known_trees[root] for root in roots if root in known_trees}
        self._after = after
        return list(self._trees.values())

    def _changed_roots(self) -> tuple[frozenset[str] | None, int | None]:
        """Return the roots of trees that changed since the last call, None when all may have.

        :returns: and the position of now, before they are read: what changes meanwhile comes again.
        """
        after = self._after
        try:
            changes = self._feed.of_kinds(("structure", "usage"), after, (), 0)
        except errors.ChangesPruned:
            changes = self._feed.of_kinds(("structure", "usage"), after := None, (), 0)
        except errors.ChangesNotOffered:
            return None, None
        return None if after is None or changes.more else changes.roots, changes.last


class FollowedAgents:
    """What agents announce, from one look to the next.

    :param clock: monotonic seconds, as those of the announcements.
    """

    def __init__(self, agents: AgentsOnBus, clock: Callable[[], float] = time.monotonic) -> None:
        self._agents = agents
        self._clock = clock
        self._listening_since = clock()
        self.is_bus_away = False

    def look(self) -> fleet.HeardAgents:
        """Return what is known now; nothing while the bus is away."""
        was_away, self.is_bus_away = self.is_bus_away, self._agents.is_bus_away()
        now = self._clock()
        if was_away or self.is_bus_away:
            self._listening_since = now
        if self.is_bus_away:
            return fleet.HeardAgents({}, is_complete=False)
        patience = self._agents.patience
        last = self._agents.last()
        return fleet.HeardAgents(
            nodes={root: node for root, (at, node) in last.items() if now - at < patience},
            last_heard={root: time.time() - (now - at) for root, (at, _) in last.items()},
            is_complete=now - self._listening_since >= patience,
        )
