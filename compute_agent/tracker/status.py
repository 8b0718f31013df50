"""Status of the running agent: one document for people, RPC, socket and metrics."""

from __future__ import annotations

import copy
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field, to_builtins
from msgspec.structs import replace

from compute_agent import __version__
from compute_agent.daemon import tracing
from compute_agent.daemon.message_bus import BusState, BusStatus
from compute_agent.daemon.trouble import Trouble, dated, moment_text
from compute_agent.programs.printable import first_of
from compute_agent.provider_tree.inventory import capacity
from compute_agent.provider_tree.trait_names import CUSTOM_GPU_UNHEALTHY
from compute_agent.tracker.change_log import ChangeHistory

if TYPE_CHECKING:
    from compute_agent.discovery.bounded_calls import HungCall
    from compute_agent.provider_tree import ProviderTree
    from compute_agent.state.files import StateFile


NODES_NAMED = 5
"""A line of the log has no more nodes than these."""


class PassOutcome(Struct, frozen=True):
    """How the last pass of a node went. `at` in seconds since the epoch, `seconds` its duration."""

    at: float
    seconds: float
    requests: int
    writes: int
    providers: int
    changes: int
    outcome: str
    global_request_id: str = ""


class InventoryStatus(Struct, frozen=True):
    """The inventories of one resource class: what they give out, and what is kept back."""

    capacity: int = 0
    reserved: int = 0


class NodeStatus(Struct, frozen=True):
    """One node as the status document shows it."""

    name: str
    uuid: str
    startup: bool = True
    enabled: bool = True
    disabled_reason: str = ""
    reshape_pending: bool = False
    last_pass: PassOutcome | None = None
    last_success: float | None = None
    trouble: Trouble | None = None
    drift: Mapping[str, Sequence[str]] = {}
    """Consumers about which the host and placement disagree, by kind; one that cannot be found out
    is left out."""
    orphans_unknown: str = ""
    """Why consumers that are gone cannot be found out; empty: they can."""
    caveats: Sequence[str] = ()
    """What of the report is not what it should be, by the driver."""
    gpus: Sequence[Mapping[str, Any]] = ()
    """Facts about GPUs that are no inventory, by the driver."""
    inventories: Mapping[str, InventoryStatus] = {}
    """What the node reports, by resource class: the sums over its tree."""
    faulty: Sequence[str] = ()
    """The names of providers of devices that are marked as broken."""


class PlacementStatus(Struct, frozen=True):
    """Whether placement answers, and since when that is so.

    :ivar clock_offset: seconds by which this machine's clock is ahead of placement's.
    """

    up: bool | None = None
    since: float | None = None
    max_version: str = ""
    clock_offset: float | None = None


class FeedState(StrEnum):
    """What the agent learns from placement's feed of changes."""

    OFF = "off"
    STARTING = "starting"
    FOLLOWING = "following"
    FAILING = "failing"
    NOT_OFFERED = "not offered"


UNFOLLOWED: Final = (FeedState.FAILING, FeedState.NOT_OFFERED)
"""States in which only periodic passes find changes, though they are to be followed."""


class FeedStatus(Struct, frozen=True):
    """How following changes goes, and since when it does.

    :ivar last: the id up to which changes are known.
    :ivar changes: changes of this host's trees, since the start of the process.
    :ivar why: why they cannot be followed; empty: they can.
    """

    state: FeedState = FeedState.OFF
    since: float | None = None
    why: str = ""
    last: int | None = None
    changes: int = 0


class Counters(Struct):
    """Totals since the start of the process."""

    passes: Counter[str] = field(default_factory=Counter)
    """By outcome."""
    requests: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By method and status."""
    retries: int = 0
    undecided_claims: int = 0
    """Claims refused since it would have taken too long to decide whether the guest fits."""
    pass_seconds: float = 0.0
    stages: Counter[str] = field(default_factory=Counter)
    """How often a stage of a pass was gone through."""
    stage_seconds: dict[str, float] = {}


class StatusBoard:
    """Where the tracker writes how it goes, and everybody else reads it. Safe for threads.

    Its public values are replaced, never changed.
    """

    def __init__(self, host: str, history: ChangeHistory | None = None) -> None:
        self.host = host
        self.started_at = time.time()
        self.history = history or ChangeHistory()
        self._mutex = threading.Lock()
        self._nodes: dict[str, NodeStatus] = {}
        self.search_trouble: Trouble | None = None
        """Why the nodes of this host cannot be found; None: they can."""
        self.state_files: Sequence[StateFile[Any]] = ()
        """The files of the state directory, each with the failure of its last write."""
        self.reload_trouble: Trouble | None = None
        """Why the last reload failed; None: it did not."""
        self.placement = PlacementStatus()
        """Whether placement answers."""
        self._counters = Counters()
        self.feed = FeedStatus()
        """How following changes goes."""
        self.bus = BusStatus()
        """The state of the message bus."""
        self._availability: dict[str, Any] = {}
        self.on_answer: Callable[[], None] = lambda: None
        """Called after every request to placement: a sign of progress."""
        self.hung_calls: Callable[[], Sequence[HungCall]] = tuple
        """Returns the calls that have not returned for a noticeable time."""

    def set_node(self, name: str, uuid: str, **changes: Any) -> None:
        """Change what is said about a node; the first mention of its uuid makes it known."""
        with self._mutex:
            known_status = self._nodes.get(name)
            if known_status is None or known_status.uuid != uuid:
                known_status = NodeStatus(name=name, uuid=uuid, **self._availability)
            self._nodes[name] = replace(known_status, **changes)

    def set_availability(self, *, is_enabled: bool, reason: str) -> None:
        """Record whether new instances are allowed on the host, for present and later nodes."""
        with self._mutex:
            self._availability = {"enabled": is_enabled, "disabled_reason": reason}
            self._nodes = {
                name: replace(node, **self._availability) for name, node in self._nodes.items()
            }

    def forget_node(self, name: str) -> None:
        """Remove a node that is not managed here any more."""
        with self._mutex:
            self._nodes.pop(name, None)

    def node(self, name: str) -> NodeStatus | None:
        """Return what is known about a node, None if it is not managed here."""
        with self._mutex:
            return self._nodes.get(name)

    def placement_is(self, up: bool, max_version: str = "") -> None:
        """Note whether placement answers."""
        with self._mutex:
            placement = self.placement
            if placement.up is not up:
                placement = replace(placement, up=up, since=time.time())
            max_version = max_version or placement.max_version
            self.placement = replace(placement, max_version=max_version)

    def feed_is(
        self, state: FeedState, why: str = "", *, last: int | None = None, changes: int = 0
    ) -> None:
        """Record how following changes goes, and why it does not.

        :param changes: so many more.
        """
        with self._mutex:
            feed = self.feed
            if feed.state is not state:
                feed = replace(feed, state=state, since=time.time())
            last = feed.last if last is None else last
            self.feed = replace(feed, why=why, last=last, changes=feed.changes + changes)

    def bus_is(self, state: BusState, why: str = "") -> None:
        """Record whether messages go through, and why not."""
        with self._mutex:
            bus = self.bus if self.bus.state is state else BusStatus(state, time.time())
            self.bus = replace(bus, why=why)

    @property
    def state_trouble(self) -> Trouble | None:
        """What the first state file that cannot be written failed with; None: all are written."""
        failures = [failure for file in self.state_files if (failure := file.failure)]
        first = min(failures, key=lambda failure: failure.since, default=None)
        return Trouble("not written", first.why, first.since, first.tries) if first else None

    def count_pass(self, outcome: str, seconds: float) -> None:
        """Count a pass that ended, however."""
        with self._mutex:
            self._counters.passes[outcome] += 1
            self._counters.pass_seconds += seconds

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure a stage of a pass, also one that fails."""
        began = time.monotonic()
        try:
            with tracing.span(name):
                yield
        finally:
            seconds = time.monotonic() - began
            with self._mutex:
                self._counters.stages[name] += 1
                stage_seconds = self._counters.stage_seconds
                stage_seconds[name] = stage_seconds.get(name, 0.0) + seconds

    def count_request(
        self, method: str, status: int | None, clock_offset: float | None = None
    ) -> None:
        """Count a request to placement.

        :param status: None: there was no answer.
        :param clock_offset: seconds by which the clock is ahead of placement's, where it is known.
        """
        with self._mutex:
            self.placement = replace(self.placement, clock_offset=clock_offset)
            self._counters.requests[method, "none" if status is None else str(status)] += 1
        self.on_answer()

    def count_retry(self) -> None:
        """Count a pass that is repeated because other writers came first."""
        with self._mutex:
            self._counters.retries += 1

    def count_undecided_claim(self) -> None:
        """Count a claim that was refused since its fit was not decided."""
        with self._mutex:
            self._counters.undecided_claims += 1

    def counters(self) -> Counters:
        """Return a copy of the totals."""
        with self._mutex:
            return copy.deepcopy(self._counters)

    def nodes(self) -> list[NodeStatus]:
        """Return every node, ordered by name."""
        with self._mutex:
            return [self._nodes[name] for name in sorted(self._nodes)]

    def document(self) -> dict[str, Any]:
        """Return everything as plain JSON types; times as text in UTC."""
        counters, state, search = self.counters(), self.state_trouble, self.search_trouble
        return {
            "host": self.host,
            "version": __version__,
            "pid": os.getpid(),
            "started": moment_text(self.started_at),
            "placement": dated(self.placement),
            "bus": dated(self.bus),
            "changes": dated(self.feed),
            "hung_calls": [dated(call) for call in self.hung_calls()],
            "state": state and dated(state),
            "reload": self.reload_trouble and dated(self.reload_trouble),
            "trouble": search and dated(search),
            "nodes": [
                _node_document(node)
                | {"losses": [dated(loss) for loss in self.history.losses(node.name)]}
                for node in self.nodes()
            ],
            "totals": {
                "passes": dict(counters.passes),
                "requests": {
                    f"{method} {status}": count
                    for (method, status), count in sorted(counters.requests.items())
                },
                "conflicts": counters.retries,
                "retries": counters.retries,
                "undecided_claims": counters.undecided_claims,
                "stages": {
                    name: {"times": times, "seconds": round(counters.stage_seconds[name], 3)}
                    for name, times in sorted(counters.stages.items())
                },
            },
        }

    def history_document(self) -> list[dict[str, Any]]:
        """Return the last changes as plain JSON types, the oldest first."""
        return [dated(past) for past in self.history.changes()]

    def summary(self) -> str:
        """Return one line for the service manager."""
        bus = self.bus
        summary = self._nodes_summary()
        if bus.state in (BusState.REFUSED, BusState.UNREACHABLE):
            summary += f"; message bus {bus.state} since {moment_text(bus.since)}"
        if self.feed.state in UNFOLLOWED:
            summary += f"; changes not followed since {moment_text(self.feed.since)}"
        if state_trouble := self.state_trouble:
            summary += f"; state not written since {moment_text(state_trouble.since)}"
        if reload_trouble := self.reload_trouble:
            summary += f"; not reloaded at {moment_text(reload_trouble.since)}"
        return summary

    def _nodes_summary(self) -> str:
        nodes = self.nodes()
        troubles = [node.trouble for node in nodes if node.trouble]
        if self.placement.up is False:
            return f"placement cannot be reached since {moment_text(self.placement.since)}"
        if search_trouble := self.search_trouble:
            return f"the nodes of this host cannot be found: {search_trouble.what}"
        if troubles:
            return f"{len(troubles)} of {len(nodes)} node(s) in trouble: {troubles[0].what}"
        if waiting := [node.name for node in nodes if node.startup]:
            named_nodes = first_of(waiting, NODES_NAMED)
            reported_count = len(nodes) - len(waiting)
            return (
                f"{reported_count} of {len(nodes)} node(s) reported; waiting for the first pass of "
                f"{named_nodes}"
            )
        return f"{len(nodes)} node(s) reported"

    def start_summary(self) -> str:
        """Return one line with the nodes and how many providers each has."""
        node_texts = [
            f"{node.name} with {node.last_pass.providers} resource provider(s)"
            if node.last_pass
            else f"{node.name} not reported yet"
            for node in self.nodes()
        ]
        return first_of(node_texts, NODES_NAMED) or "no node"


def inventories_of(tree: ProviderTree, root_uuid: str) -> dict[str, InventoryStatus]:
    """Return the sums of a tree by resource class."""
    sums: dict[str, InventoryStatus] = {}
    for uuid in tree.get_provider_uuids(root_uuid):
        for resource_class, record in tree.data(uuid).inventory.items():
            present_sum = sums.get(resource_class, InventoryStatus())
            sums[resource_class] = InventoryStatus(
                present_sum.capacity + max(int(capacity(record)), 0),
                present_sum.reserved + int(record["reserved"]),
            )
    return dict(sorted(sums.items()))


def faulty_in(tree: ProviderTree, root_uuid: str) -> tuple[str, ...]:
    """Return the names of a tree's providers whose devices are marked as broken."""
    providers = [tree.data(uuid) for uuid in tree.get_provider_uuids(root_uuid)]
    return tuple(
        sorted(provider.name for provider in providers if CUSTOM_GPU_UNHEALTHY in provider.traits)
    )


def _node_document(node: NodeStatus) -> dict[str, Any]:
    return {
        **to_builtins(node),
        "last_success": moment_text(node.last_success),
        "last_pass": node.last_pass and dated(node.last_pass),
        "trouble": node.trouble and dated(node.trouble),
    }
