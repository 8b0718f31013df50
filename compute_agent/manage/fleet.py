"""Hosts of a fleet, as placement and the announcements of agents show them together."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from msgspec import Struct
from msgspec.structs import replace

from compute_agent import errors
from compute_agent.drift.wording import count_of
from compute_agent.manage.drain import use_of
from compute_agent.manage.tree_reading import ProviderLines, read_tree, used_and_capacity
from compute_agent.placement.transports.transport import BASE
from compute_agent.programs.exit_status import Exit
from compute_agent.programs.printable import shortened
from compute_agent.provider_tree.trait_names import COMPUTE_STATUS_DISABLED, CUSTOM_GPU_UNHEALTHY
from compute_agent.tracker.decisions import EventKind

if TYPE_CHECKING:
    from compute_agent.drift.instances.agents import AgentsOnBus
    from compute_agent.placement.answers import AgentReport
    from compute_agent.placement.api import PlacementApi

UP: Final = "up"
SILENT: Final = "silent"
UNKNOWN: Final = "unknown"
"""There is no message bus, or too little was heard on it so far, and placement heard nothing."""
REFUSED: Final = "refused"
UNREACHABLE: Final = "unreachable"

_READ_AT_ONCE: Final = 8
_MEMBER_OF: Final = (1, 32)
"""The microversion from which on conditions on aggregates may be negated."""
_MESSAGE_LENGTH: Final = 500
_SILENCE: Final = (
    "its agent is not heard: it does not run, or cannot use its hypervisor, placement or the "
    "message bus (`compute-agent doctor` there)"
)

Announced = Mapping[str, Any]
"""The announcement of one node of an agent, with the name of its service as `service`."""


class HeardAgents(Struct, frozen=True):
    """What the message bus tells of the agents of hosts.

    :ivar nodes: what is announced by those that run, by uuid of the root.
    :ivar last_heard: when others were heard last, in seconds since 1970, by uuid of the root.
    :ivar is_complete: whether one that was not heard is silent; else it is too early to know.
    """

    nodes: Mapping[str, Announced]
    last_heard: Mapping[str, float] = {}
    is_complete: bool = True


class FleetHost(Struct, frozen=True):
    """One host.

    :ivar agent: `up`, `silent` or `unknown`.
    :ivar bus: whether its agent is on the message bus: `up`, `refused`, `unreachable`, `off` where
        it is configured with none, `waiting` before its first pass, or `unknown`.
    :ivar bus_since: since when it is so, in seconds since 1970, if that is known.
    :ivar consumers: number of those of a host that is silent or disabled; None: not counted.
    :ivar silent_since: when a silent agent was heard last, in seconds since 1970, if that is known.
    :ivar service: the name under which its agent is called on the bus; None unless it is up.
    :ivar reason: why it is disabled, as far as the agent knows.
    :ivar amounts: used amount and capacity by resource class, over all its providers.
    :ivar trouble: sentences about what is not as it should be.
    """

    uuid: str
    name: str
    agent: str
    service: str | None
    is_enabled: bool
    reason: str
    providers: int
    amounts: Mapping[str, tuple[int, int]] = {}
    trouble: tuple[str, ...] = ()
    silent_since: float | None = None
    bus: str = UNKNOWN
    bus_since: float | None = None
    consumers: int | None = None


def roots(
    placement: PlacementApi, name: str | None = None, member_of: Sequence[str] = ()
) -> list[tuple[str, str]]:
    """Return uuid and name of the hosts: the root providers with the trait COMPUTE_NODE.

    :param name: part of the names that are wanted.
    :param member_of: conditions on their aggregates, as a query has them.
    :raises PlacementError: placement cannot be read.
    """
    query = [("required", "COMPUTE_NODE"), *(("member_of", value) for value in member_of)]
    version = max(BASE, _MEMBER_OF) if member_of else BASE
    providers = placement.providers.find(urlencode(query), "Listing the hosts", version)
    found_roots = [
        (str(provider["uuid"]), str(provider["name"]))
        for provider in providers
        if provider["parent_provider_uuid"] is None and (name is None or name in provider["name"])
    ]
    return sorted(found_roots, key=lambda root: root[1])


def trees(
    placement: PlacementApi,
    roots: Sequence[str],
    *,
    progress: Callable[[int, int], None] = lambda _done_count, _all: None,
) -> Iterator[tuple[ProviderLines, ...]]:
    """Iterate over trees, in the order of their roots, each with its root first.

    :param progress: called with how many trees were read, and how many there are.
    :raises PlacementError: placement cannot be read.
    """
    with ThreadPoolExecutor(_READ_AT_ONCE, "hosts") as pool:
        read_trees = pool.map(lambda root: read_tree(placement.connection, root), roots)
        for done_count, tree in enumerate(read_trees, 1):
            progress(done_count, len(roots))
            # a host that was deleted in between has no providers
            if tree:
                yield tree


def has_traits(tree: Sequence[ProviderLines], conditions: Iterable[str]) -> bool:
    """Check that some provider of a tree has each trait; with `!` before it, that none has."""
    traits = {trait for provider in tree for trait in provider.traits}
    return all((name.lstrip("!") in traits) != name.startswith("!") for name in conditions)


def described(
    placement: PlacementApi,
    trees: Iterable[Sequence[ProviderLines]],
    agents: HeardAgents | None,
    *,
    counts_consumers: bool = False,
) -> list[FleetHost]:
    """Describe the hosts of trees, also by what placement heard of their agents.

    :param agents: None without a message bus.
    :param counts_consumers: of hosts that are silent or disabled, which takes requests for each.
    :raises PlacementError: placement cannot be read.
    """
    read_trees = list(trees)
    reports = placement.trees.agent_reports([tree[0].uuid for tree in read_trees])
    hosts = [describe(tree, agents, reports.get(tree[0].uuid)) for tree in read_trees]
    if not counts_consumers:
        return hosts
    return [
        host
        if host.agent != SILENT and host.is_enabled
        else replace(
            host, consumers=len(use.holders) if (use := use_of(placement, host.uuid)) else 0
        )
        for host in hosts
    ]


def describe(
    tree: Sequence[ProviderLines], agents: HeardAgents | None, report: AgentReport | None = None
) -> FleetHost:
    """Describe the host of one tree, whose root comes first.

    :param agents: None without a message bus.
    :param report: what placement heard last from its agent.
    """
    root = tree[0]
    node = _node_of(agents, root.uuid)
    agent, bus, bus_since = _agent_and_bus(node, agents, report)
    last_times = [report.at.timestamp()] if report is not None else []
    if agents is not None and root.uuid in agents.last_heard:
        last_times.append(agents.last_heard[root.uuid])
    reason = (node or {}).get("disabled_reason") or (report.disabled_reason if report else "")
    is_enabled = COMPUTE_STATUS_DISABLED not in root.traits
    return FleetHost(
        uuid=root.uuid,
        name=root.name,
        agent=agent,
        service=None if node is None else str(node["service"]),
        is_enabled=is_enabled,
        reason="" if is_enabled and node is None else str(reason),
        providers=len(tree),
        amounts=used_and_capacity(tree),
        trouble=(*_trouble_of_agent(agent, bus, report), *_trouble(tree, node)),
        silent_since=max(last_times, default=None) if agent == SILENT else None,
        bus=bus,
        bus_since=bus_since,
    )


def _node_of(agents: HeardAgents | None, root: str) -> Announced | None:
    """Return what the agent of a host announces; None where it is not heard."""
    return None if agents is None else agents.nodes.get(root)


def _agent_and_bus(
    node: Announced | None, agents: HeardAgents | None, report: AgentReport | None
) -> tuple[str, str, float | None]:
    """Return the state of an agent, that of its message bus, and since when the latter is so.

    One that is not heard although the bus was up when it reported last has ended since then.
    """
    if node is not None:
        return UP, UP, None
    is_unheard = agents is not None and agents.is_complete
    if report is None:
        return (SILENT if is_unheard else UNKNOWN), UNKNOWN, None
    bus, since = str(report.bus["state"]), report.bus.get("since")
    if report.is_silent or (is_unheard and bus == UP):
        return SILENT, UNKNOWN, None
    return UP, bus, datetime.fromisoformat(since).timestamp() if since else None


def _trouble_of_agent(agent: str, bus: str, report: AgentReport | None) -> Iterator[str]:
    if agent == SILENT:
        yield _SILENCE
    elif report is not None and bus in (REFUSED, UNREACHABLE):
        why = report.bus.get("why") or "see its log"
        yield f"its agent cannot use the message bus, so it takes no claims or orders: {why}"
    if agent == UP and bus != UP and report is not None and report.trouble:
        yield f"the last pass of its agent: {report.trouble}"


class WouldBeUndone(errors.ComputeAgentError):
    """The agent of a host runs, cannot be given an order, and would undo what is changed."""

    exit_status = Exit.REFUSED


class HostSwitch(Struct, frozen=True):
    """What enables and disables a host: its agent where that is heard, and placement.

    An agent that was not heard and comes back later sets the trait as its own state says.

    :ivar root: uuid and name of the host.
    :ivar heard: the agents that were heard; None without a message bus that can be used.
    """

    placement: PlacementApi
    agents: AgentsOnBus | None
    root: tuple[str, str]
    heard: HeardAgents | None

    @classmethod
    def of(
        cls, placement: PlacementApi, agents: AgentsOnBus | None, root: tuple[str, str]
    ) -> HostSwitch:
        """Return that of a host, after listening for its agent."""
        heard = None if agents is None else HeardAgents(agents.nodes([root[0]]))
        return cls(placement, agents, root, heard)

    @property
    def by(self) -> str:
        """What changes the host, and which others with it."""
        if self.heard is None:
            return "in placement alone; an agent that runs there sets it as it was told itself"
        node = _node_of(self.heard, self.root[0])
        if node is None:
            return "in placement alone; no agent of it was heard"
        others = sorted(
            str(other["name"])
            for uuid, other in self.heard.nodes.items()
            if other["service"] == node["service"] and uuid != self.root[0]
        )
        with_others = f", and with it {', '.join(others)}" if others else ""
        return f"by its agent {node['service']}{with_others}"

    def would_change(self, *, is_enabled: bool, reason: str) -> bool:
        """Return whether the host is not enabled or disabled, for this reason, already.

        :raises PlacementError: placement cannot be read.
        """
        node = _node_of(self.heard, self.root[0])
        traits = self.placement.providers.traits(*self.root).content
        is_shown_enabled = COMPUTE_STATUS_DISABLED not in traits
        if is_shown_enabled != is_enabled or node is None:
            return is_shown_enabled != is_enabled
        if is_enabled:
            # to be enabled by an operator also forgets the builds that failed
            return not node.get("enabled", True) or bool(node.get("build_failures"))
        return bool(node.get("enabled", True)) or node.get("disabled_reason") != reason

    def check_not_undone(self, *, is_enabled: bool) -> None:
        """Check that the agent of the host takes the order, or does not run.

        :raises WouldBeUndone: it runs and cannot be reached; the text has the command that works.
        :raises PlacementError: placement cannot be read.
        """
        uuid, name = self.root
        node = _node_of(self.heard, uuid)
        report = self.placement.trees.agent_reports([uuid]).get(uuid)
        agent, bus, _ = _agent_and_bus(node, self.heard, report)
        if node is not None or report is None or agent != UP:
            return
        seconds = max(0, round(time.time() - report.at.timestamp()))
        why = "this command has no message bus" if bus == UP else f"its message bus is {bus}"
        command = "enable" if is_enabled else "disable --reason TEXT"
        raise WouldBeUndone(
            f"The agent of host {name} reported to placement {seconds} s ago, but cannot be given "
            f"an order ({why}), and would undo this with its next pass. Nothing was "
            f"changed. Give the order on that host, {report.place['address']}: "
            f"`compute-agent {command}`; or mend the message bus."
        )

    def set(self, *, is_enabled: bool, reason: str = "") -> None:
        """Enable or disable the host.

        :raises AgentRefused: the agent did not do it.
        :raises PlacementError: placement refused.
        """
        node = _node_of(self.heard, self.root[0])
        if self.agents is not None and node is not None:
            self.agents.ask(node["service"], "set_host_enabled", enabled=is_enabled, reason=reason)

        def mark() -> None:
            traits = self.placement.providers.traits(*self.root)
            new_traits = traits.content - {COMPUTE_STATUS_DISABLED}
            if not is_enabled:
                new_traits |= {COMPUTE_STATUS_DISABLED}
            if new_traits != traits.content:
                self.placement.providers.put_traits(*self.root, traits.generation, new_traits)

        # here too: an agent that cannot reach placement now shows it with its next pass only
        self.placement.connection.retries.while_conflicting(mark)


def _trouble(tree: Sequence[ProviderLines], node: Announced | None) -> Iterator[str]:
    broken_devices = [provider.name for provider in tree if CUSTOM_GPU_UNHEALTHY in provider.traits]
    if broken_devices:
        yield f"{count_of(len(broken_devices), 'broken device')}: {', '.join(broken_devices)}"
    for provider in tree:
        if provider.holders:
            yield f"{provider.name} is gone, held by {provider.named_holders}"
    over = [
        f"{resource_class} of {provider.name} by {-line.free}"
        for provider in tree
        if not provider.holders
        for resource_class, line in provider.inventories.items()
        if line.free < 0
    ]
    if over:
        yield f"over capacity: {', '.join(over)}"
    if node is None:
        return
    if node.get("reshape_pending"):
        yield "a reshape is pending: restart its agent"
    last = node.get("last_pass")
    if last and last["outcome"] != EventKind.COMPLETED.value:
        message = shortened(str((node.get("trouble") or {}).get("message", "")), _MESSAGE_LENGTH)
        yield f"the last pass of its agent: {last['outcome']}{message and f': {message}'}"
    yield from map(str, node.get("caveats") or ())
    if failures := int(node.get("build_failures") or 0):
        yield count_of(failures, "failed build")
