"""Migration of this host's layout with no service running, for a fast-forward upgrade.

It is the agent's own first pass, so it is always safe: without a difference it does nothing,
a second run finds nothing, and an interrupted one is completed by the next.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from compute_agent import errors
from compute_agent.placement.connection import Clock, Retries
from compute_agent.report.steps import KeepProvider, describe
from compute_agent.tracker.pass_attempt import as_one
from compute_agent.tracker.passes.node_pass import ReshapeNeededAgain

if TYPE_CHECKING:
    from compute_agent.agent.assembly import AgentParts
    from compute_agent.tracker.resource_tracker import ResourceTracker

NOT_MIGRATED = (
    errors.ReshapeFailed,
    errors.ResourceProviderUpdateFailed,
    errors.ResourceProviderUpdateConflict,
    errors.InvalidInput,
    ReshapeNeededAgain,
)
"""Errors that keep one node from being migrated and do not concern the others."""


@dataclass(frozen=True, slots=True)
class NodeResult:
    """The steps that were, or would be, done for one node.

    :ivar operations: in words, in order; empty without a difference.
    :ivar consumers: how many consumers' allocations a reshape rewrote.
    :ivar failure: why the node was left as it was, if it was.
    """

    node: str
    uuid: str
    operations: tuple[str, ...]
    reshaped: bool
    consumers: int
    seconds: float
    failure: str | None = None


def migrate(
    parts: AgentParts,
    nodes: Mapping[str, str],
    *,
    dry_run: bool,
    clock: Clock | None = None,
) -> Iterator[NodeResult]:
    """Migrate the tree of each node to the configured layout, and yield the results.

    A node that cannot be migrated is reported and does not stop the others.

    :param nodes: name to uuid.
    :param clock: for the waits between tries, when something else writes at the same time.
    :raises ComputeAgentError: placement or the driver cannot be used. The nodes yielded before are
        done; the next run finishes the rest.
    """
    tracker = parts.tracker(wait=lambda _seconds: False)
    retries = Retries(clock or Clock())
    for name, uuid in nodes.items():
        tracker.add_node(name, uuid)
        yield _Migration(parts, tracker, name, uuid, dry_run).result(retries)


@dataclass(slots=True)
class _Migration:
    """The migration of one node; each try reads again."""

    parts: AgentParts
    tracker: ResourceTracker
    name: str
    uuid: str
    dry_run: bool
    operations: tuple[str, ...] = ()
    is_reshaped: bool = False
    consumers: int = 0

    def result(self, retries: Retries) -> NodeResult:
        began = time.monotonic()
        failure = None
        try:
            retries.while_conflicting(self._attempt)
        except NOT_MIGRATED as error:
            failure = str(error)
        return NodeResult(
            self.name,
            self.uuid,
            self.operations,
            self.is_reshaped,
            self.consumers,
            round(time.monotonic() - began, 3),
            failure,
        )

    def _attempt(self) -> None:
        proposal = self.tracker.propose(self.name)
        if proposal.problems:
            raise as_one(proposal.problems)
        planned_transfers = [
            step
            for step in self.parts.node_pass.steps(proposal)
            if not isinstance(step, KeepProvider)
        ]
        self.operations = (
            *map(describe, planned_transfers),
            *(f"(in the reshape) {change}" for change in proposal.class_changes),
        )
        self.is_reshaped = proposal.allocations is not None
        if proposal.allocations is not None:
            before = proposal.original_allocations or {}
            self.consumers = sum(
                record != before.get(consumer) for consumer, record in proposal.allocations.items()
            )
        if not planned_transfers or self.dry_run:
            return
        try:
            self.parts.node_pass.flush(proposal)
        except errors.PlacementReshapeConflict as error:
            # to be repeated as any other conflict, from reading on
            raise errors.ResourceProviderUpdateConflict(str(error), status=error.status) from error
