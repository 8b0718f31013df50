"""The resource tracker, which keeps placement equal to what the driver sees, node by node.

It runs passes and does what `decisions` makes of a failure: it repeats, backs off, leaves the node
until the next period, or returns that the process must end. The node's lock is held during a pass
and never while waiting.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from compute_agent import errors
from compute_agent.daemon import tracing
from compute_agent.placement.connection import stepping_aside
from compute_agent.placement.transports.transport import version_text
from compute_agent.provider_tree.trait_names import COMPUTE_STATUS_DISABLED
from compute_agent.tracker import decisions
from compute_agent.tracker.change_log import log_changes
from compute_agent.tracker.decisions import Action, Decision, Event, NodeState
from compute_agent.tracker.node import (
    HoldableLock,
    LentLock,
    Node,
    OrderedLocks,
    PassTarget,
    Proposal,
)
from compute_agent.tracker.pass_attempt import PassAttempt, PassResult, as_one, subject_of
from compute_agent.tracker.pass_schedule import NEVER
from compute_agent.tracker.passes.node_pass import NodePass
from compute_agent.tracker.status import StatusBoard, faulty_in, inventories_of
from compute_agent.tracker.write_contest import WriteContest

if TYPE_CHECKING:
    from compute_agent.provider_tree import ProviderTree
    from compute_agent.report.client import ReportClient
    from compute_agent.report.steps import Step

LOG = logging.getLogger(__name__)

TRIES_TO_MARK: Final = 8
"""To mark a host as disabled at once, between two reshapes that other writers prevent."""
PATIENCE: Final = 30.0
"""Seconds that an order waits for a node: callers on the bus give up after 60 by default."""


class TrackerOptions(Struct, frozen=True):
    """What the operator configured for passes, in seconds.

    `period` is `NEVER` where no periodic passes are wanted.
    """

    period: float = 60.0
    startup_placement_timeout: float = 0.0
    rename_allowed: bool = True
    fuzzy_delay: float = 0.0

    def limits(self) -> decisions.WaitLimits:
        """Return the bounds the decisions work with; without a period a retry comes in 60 s."""
        period = 60.0 if self.period == NEVER else self.period
        return decisions.WaitLimits(period, self.startup_placement_timeout, self.fuzzy_delay)


class ResourceTracker(Struct, eq=False):
    """The nodes of this agent and their passes. Safe for several threads.

    :ivar turns: for as many passes at once, those that wait not counted.
    :ivar patience: seconds that an order waits for a node whose pass does not end.
    :ivar clock: seconds, monotonic.
    :ivar wait: waits the given seconds; True if the agent is to stop, so that nothing goes on.
    """

    node_pass: NodePass
    report: ReportClient
    board: StatusBoard
    options: TrackerOptions
    contest: WriteContest
    wait: Callable[[float], bool]
    turns: threading.Semaphore = field(default_factory=threading.Semaphore)
    patience: float = PATIENCE
    clock: Callable[[], float] = time.monotonic
    rng: random.Random = field(default_factory=random.Random)
    _started_at: float = 0.0
    _nodes: dict[str, Node] = {}
    """Replaced, never changed: other threads go through it meanwhile."""

    def __post_init__(self) -> None:
        self._started_at = self.clock()

    def add_node(self, name: str, uuid: str) -> None:
        """Take a node in; one that is known under the same uuid keeps its state."""
        known_node = self._nodes.get(name)
        if known_node is None or known_node.uuid != uuid:
            is_late = bool(self.started_nodes())
            node = Node(name, uuid, NodeState(self._started_at, is_late=is_late))
            self._nodes = {**self._nodes, name: node}
            self.board.set_node(name, uuid)

    def drop_node(self, name: str) -> None:
        """Forget a node that is not managed here any more; placement keeps its providers."""
        self._nodes = {
            node_name: node for node_name, node in self._nodes.items() if node_name != name
        }
        self.board.forget_node(name)

    def nodes(self) -> dict[str, str]:
        """Return the nodes managed here, name to uuid."""
        return {name: node.uuid for name, node in self._nodes.items()}

    def in_startup(self) -> list[str]:
        """Return the nodes whose first pass has not completed."""
        return [node.name for node in self._nodes.values() if node.state.startup]

    def started_nodes(self) -> list[str]:
        """Return the nodes whose first pass has completed."""
        return [node.name for node in self._nodes.values() if not node.state.startup]

    @contextmanager
    def hold(self, name: str) -> Iterator[None]:
        """Hold what passes of the node and claims on it share.

        :raises ComputeHostNotFound: the node is not managed here any more.
        :raises ComputeNodeBusy: a pass of it does not end.
        """
        with self._acquire(self._known_node(name).lock, name, self.patience):
            yield

    @contextmanager
    def _acquire(self, lock: HoldableLock, name: str, patience: float | None) -> Iterator[None]:
        if not lock.acquire(timeout=patience):
            raise errors.ComputeNodeBusy(
                f"Node {name} is busy: a pass or another order has not ended for {patience:g} s. "
                "`compute-agent status` shows what it waits for; try again later."
            )
        try:
            yield
        finally:
            lock.release()

    def reported_tree(self, name: str) -> tuple[ProviderTree, str]:
        """Return the tree of a node as it was last brought to placement, and the root's uuid.

        :raises ComputeHostNotFound: the node is not managed here any more.
        :raises ComputeResourcesUnavailable: no pass of it has reported it yet.
        """
        node = self._known_node(name)
        if node.last is None:
            raise errors.ComputeResourcesUnavailable(
                f"Node {name} has not been reported to placement since the agent started: its "
                "first pass has not completed. `compute-agent status` shows what it waits for."
            )
        return node.last.wanted_tree, node.uuid

    def facts(self, name: str) -> Mapping[str, Any]:
        """Return the driver's facts about a node from the pass that reported it last.

        :raises ComputeHostNotFound: the node is not managed here any more.
        """
        last = self._known_node(name).last
        return {} if last is None else last.facts

    def _known_node(self, name: str) -> Node:
        node = self._nodes.get(name)
        if node is None:
            raise errors.ComputeHostNotFound(f"Node {name} is not managed by this agent any more.")
        return node

    def propose(self, name: str) -> Proposal:
        """Find out what a pass would do now, without doing it. A reshape is proposed as one.

        :raises ComputeNodeBusy: a pass of the node does not end.
        :raises Exception: as a pass; nothing is decided about it.
        """
        node = self._nodes[name]
        target = self._target(node)
        with self._pass_of(node, self.patience), self.report.tracing():
            try:
                return self.node_pass.propose(target)
            except errors.ReshapeNeeded:
                return self.node_pass.propose(target, reshape=True)

    def plan(self, name: str) -> list[Step]:
        """Return the steps a pass would do now.

        :raises Exception: as a pass; nothing is decided about it.
        """
        return self.node_pass.steps(self.propose(name))

    def run_pass(
        self,
        name: str,
        *,
        asked_for: bool = False,
        on_first: Callable[[str], None] = lambda _name: None,
    ) -> PassResult:
        """Run a pass of the node, with the repetitions that conflicts call for.

        A node that was dropped between the time its pass was due and now gets none.

        :param asked_for: it is wanted now, and does not wait for its turn after an outage.
        :param on_first: called with the name when all of the node's first pass is done; the pass
            fails with what this raises.
        """
        node = self._nodes.get(name)
        if node is None:
            return PassResult(completed=False, next_in=self.options.limits().period)
        while True:
            attempt = PassAttempt(began=self.clock())
            with (
                self._pass_of(node),
                self.report.tracing() as attempt.tally,
                tracing.span(
                    "pass", node=name, openstack__global_request_id=attempt.tally.global_request_id
                ),
            ):
                try:
                    turn = None if asked_for else self._turn_after_outage(node)
                    if turn is not None:
                        return PassResult(completed=False, next_in=turn)
                    self._attempt(node, attempt, on_first)
                except Exception as exception:  # noqa: BLE001 - every failure is judged below
                    attempt.error = exception
            decision = self._decide(node, attempt)
            node.state = decision.state
            self._account(node, attempt, decision)
            if attempt.error is not None and not isinstance(attempt.error, errors.PlacementError):
                self._show_life(node)
            if decision.action is Action.RETRY:
                self.board.count_retry()
                if node.state.startup and node.state.tries >= decisions.MAX_TRIES:
                    self._keep_claims_away(node, attempt)
                if self.wait(self._draw_wait(decision)):
                    return PassResult(completed=False, next_in=NEVER)
                continue
            return self._result(node, attempt, decision)

    def _show_life(self, node: Node) -> None:
        try:
            self.report.show_life(node.uuid)
        except errors.PlacementError as error:
            LOG.debug("Node %s: placement did not hear from the agent: %s", node.name, error)

    def _keep_claims_away(self, node: Node, attempt: PassAttempt) -> None:
        """Mark a host that cannot be reshaped for claims as disabled; its pass ends that."""
        if not isinstance(attempt.error, errors.PlacementReshapeConflict):
            return
        if node.state.tries == decisions.MAX_TRIES:
            LOG.info(
                "Node %s: other writers come first again and again. It takes no new instances "
                "until its first pass is done.",
                node.name,
            )
        for _ in range(TRIES_TO_MARK):
            try:
                self.report.change_traits(node.uuid, add=[COMPUTE_STATUS_DISABLED])
            except errors.ResourceProviderUpdateConflict:
                continue  # they come first here too
            except errors.PlacementError as error:
                LOG.debug("Node %s was not marked as disabled: %s", node.name, error)
            return

    @contextmanager
    def _pass_of(self, node: Node, patience: float | None = None) -> Iterator[None]:
        """Hold what a pass holds; while it waits, claims on the node and other nodes go on.

        The machine is read once in it, also where a reshape makes a second proposal.

        :param patience: seconds to wait for that; None: as long as it takes.
        """
        held_lock = OrderedLocks(self.turns, node.lock)
        with (
            self._acquire(OrderedLocks(node.at_work, held_lock), node.name, patience),
            stepping_aside(LentLock(held_lock)),
            self.node_pass.one_reading(node.name),
        ):
            yield

    def _turn_after_outage(self, node: Node) -> float | None:
        """Ask whether placement is back after an outage; the seconds until the node's turn.

        None: there was no outage, or the turn has come.

        :raises PlacementError: it is not.
        """
        bound = decisions.turn_after_outage(node.state, self.clock(), self.options.limits())
        if not bound:
            return None
        self.report.reconnect()
        self.board.placement_is(up=True)
        node.state = replace(node.state, rejoins=True)
        turn = self.rng.uniform(0.0, bound)
        LOG.debug(
            "Node %s: placement can be reached again; the next pass begins in %.1f s.",
            node.name,
            turn,
        )
        return turn

    def _attempt(self, node: Node, attempt: PassAttempt, on_first: Callable[[str], None]) -> None:
        target = self._target(node)
        self.contest.check(node.uuid)
        try:
            proposal = self.node_pass.propose(target, node.last)
        except errors.ReshapeNeeded as error:
            needed = PassAttempt(attempt.began, error=error)
            if self._decide(node, needed).action is not Action.RESHAPE:
                raise
            LOG.info(
                "Node %s: inventory and allocation data are being migrated to a new layout (%s).",
                node.name,
                error,
            )
            proposal = self.node_pass.propose(target, reshape=True)
        if proposal.problems and node.state.is_agent_start:
            raise as_one(proposal.problems)
        attempt.problems.extend(proposal.problems)
        attempt.providers = len(proposal.wanted_tree.get_provider_uuids(node.uuid))
        attempt.shown_fields = {
            "caveats": proposal.caveats,
            "gpus": proposal.facts.get("gpus", ()),
        }
        if proposal.is_settled:
            self.contest.rest(node.uuid)
        else:
            self._flush(node, attempt, proposal)
        if node.state.startup:
            on_first(node.name)

    def _flush(self, node: Node, attempt: PassAttempt, proposal: Proposal) -> None:
        attempt.shown_fields |= {
            "inventories": inventories_of(proposal.wanted_tree, node.uuid),
            "faulty": faulty_in(proposal.wanted_tree, node.uuid),
        }
        steps = self.node_pass.flush(proposal)
        attempt.changes = len(steps)
        last_tree = node.last.wanted_tree if node.last else None
        self.contest.record(node.uuid, last_tree, proposal.base, steps)
        log_changes(node.name, steps, last_tree, self.board.history, proposal.class_changes)
        node.last = proposal

    def _decide(self, node: Node, attempt: PassAttempt) -> Decision:
        event = Event(
            attempt.kind,
            at=self.clock(),
            subject=" ".join(subject_of(fault) for fault in attempt.faults),
            retry_after=getattr(attempt.error, "retry_after", None),
        )
        return decisions.decide(node.state, event, self.options.limits())

    def _account(self, node: Node, attempt: PassAttempt, decision: Decision) -> None:
        """Log and show how a try went."""
        now = self.clock()
        attempt.log(node.name, decision, now)
        entry = attempt.entry(node, now)
        is_completed = decision.action is Action.DONE
        self.board.count_pass("completed" if is_completed else "failed", now - attempt.began)
        if is_completed:
            entry["last_success"] = time.time()
            # Forgotten if a request of the pass had to be repeated. Asking again could fail, and
            # the pass did not.
            offered_versions = self.report.offered_versions
            version = version_text(offered_versions.maximum) if offered_versions else ""
            self.board.placement_is(up=True, max_version=version)
        elif decision.action is Action.BACK_OFF:
            self.board.placement_is(up=False)
        if self._nodes.get(node.name) is node:  # the board has forgotten a node that was dropped
            self.board.set_node(node.name, node.uuid, **entry)

    def _result(self, node: Node, attempt: PassAttempt, decision: Decision) -> PassResult:
        is_done = decision.action is Action.DONE
        next_in = self.options.period if is_done else self.options.limits().period
        if decision.action is Action.EXIT:
            next_in = NEVER
        elif decision.action is Action.BACK_OFF:
            next_in = self._draw_wait(decision)
        return PassResult(
            is_done,
            next_in,
            decision.exit_code,
            attempt.message,
            attempt.kind,
            facts=node.last.facts if is_done and node.last is not None else {},
        )

    def _draw_wait(self, decision: Decision) -> float:
        return max(decision.wait_at_least, self.rng.uniform(0.0, decision.wait))

    def _target(self, node: Node) -> PassTarget:
        return PassTarget(node.name, node.uuid, self.options.rename_allowed)
