"""List of the nodes: the search for them is scheduled as if it were the pass of a node."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field

from compute_agent.tracker import decisions
from compute_agent.tracker.decisions import Action, Decision, EventKind, NodeState
from compute_agent.tracker.pass_attempt import PassResult, trouble_of, with_remedy

if TYPE_CHECKING:
    from compute_agent.agent.assembly import AgentParts
    from compute_agent.tracker.pass_schedule import PassSchedule
    from compute_agent.tracker.removed_nodes import Departures
    from compute_agent.tracker.resource_tracker import ResourceTracker

LOG = logging.getLogger(__name__)

NODE_LIST = ""
"""Name under which it is scheduled."""


class NodeList(Struct, eq=False):
    """Brings the nodes of the tracker in step with those the driver manages.

    :ivar on_first: called when the driver was asked for the first time, before a pass reads the
        hardware.
    """

    parts: AgentParts
    tracker: ResourceTracker
    schedule: PassSchedule
    departures: Departures
    rng: random.Random
    on_first: Callable[[], None] = lambda: None
    _state: NodeState = field(default_factory=lambda: NodeState(started_at=time.monotonic()))
    _has_asked: bool = False

    def find(self) -> PassResult:
        """Look for the nodes; new ones are due at once, or in their turn after an outage."""
        now = time.monotonic()
        limits = self.parts.options().limits()
        turn = decisions.turn_after_outage(self._state, now, limits)
        error: Exception | None = None
        is_settled = False
        try:
            nodes = self._driver_nodes()
            is_settled = self._take_in(nodes, first_due=now + self.rng.uniform(0.0, turn))
        except Exception as exception:  # noqa: BLE001 - judged below, as in a pass
            error = exception
        kind = decisions.classify(error) if error else EventKind.COMPLETED
        event = decisions.Event(kind, now, str(error or ""), getattr(error, "retry_after", None))
        decision = decisions.decide(self._state, event, limits)
        self._state = decision.state
        fault = decision.state.fault
        self.parts.board.search_trouble = (
            trouble_of(fault, str(error or ""), now) if fault else None
        )
        if (ended_fault := decision.ended_fault) is not None:
            LOG.info(
                "The nodes of this host are found. Resolved: %s (it lasted %.0f s).",
                ended_fault.kind.value,
                now - ended_fault.since,
            )
        if error is not None:
            return self._failure_result(decision, kind, error)
        period = self.parts.options().period if is_settled else limits.period
        return PassResult(completed=True, next_in=period, kind=kind)

    def _driver_nodes(self) -> Mapping[str, str]:
        """Return the nodes that the driver manages; at its first call `on_first` follows."""
        try:
            return self.parts.setup.nodes()
        finally:
            if not self._has_asked:
                self._has_asked = True
                self.on_first()

    def _take_in(self, nodes: Mapping[str, str], first_due: float) -> bool:
        """Manage these nodes; False: also one whose pass runs now, until the next search."""
        known_nodes = self.tracker.nodes()
        # all at once: each would be written for itself by the first pass of its node
        self.parts.ledger.remember_providers(additions=nodes.values())
        for name, uuid in nodes.items():
            self.tracker.add_node(name, uuid)
        for name in self.schedule.set_nodes([NODE_LIST, *nodes], first_due=first_due):
            self.tracker.drop_node(name)
        for name, uuid in nodes.items():
            if known_nodes.get(name, uuid) != uuid:
                self.schedule.trigger("another uuid", name)
        managed_nodes = self.tracker.nodes()
        self.departures.settle(managed_nodes)
        return managed_nodes.keys() == nodes.keys()

    def _failure_result(self, decision: Decision, kind: EventKind, error: Exception) -> PassResult:
        if kind is EventKind.PLACEMENT_UNAVAILABLE:
            self.parts.board.placement_is(up=False)
        if decision.log is not None:
            LOG.log(
                decision.log,
                "The nodes of this host cannot be found: %s: %s",
                kind.value,
                with_remedy(kind, str(error)),
                exc_info=error if decision.with_traceback else None,
            )
        wait = self.parts.options().limits().period
        if decision.action in (Action.BACK_OFF, Action.RETRY):
            wait = max(decision.wait_at_least, self.rng.uniform(0.0, decision.wait))
        return PassResult(False, wait, decision.exit_code, str(error), kind)
