"""The reshape of this host with no service running: a fast-forward upgrade.

It is the agent's own first pass, so running it is always safe: with nothing to do it does nothing,
a second run finds nothing, and an interrupted one is completed by the next.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from compute_agent import errors
from compute_agent.report.operations import KeepProvider, Operation, describe

if TYPE_CHECKING:
    from compute_agent.agent_parts import AgentParts
    from compute_agent.tracker import ResourceTracker


@dataclass(frozen=True, slots=True)
class NodeResult:
    """What was done, or would be done, for one node.

    :ivar operations: in words, in order; empty when there was nothing to do.
    :ivar consumers: how many consumers' allocations a reshape rewrote.
    :ivar failure: why the node was left as it was; None when it was not.
    """

    node: str
    uuid: str
    operations: tuple[str, ...]
    reshaped: bool
    consumers: int
    seconds: float
    failure: str | None = None


def migrate(parts: AgentParts, only: Collection[str], *, dry_run: bool) -> list[NodeResult]:
    """Bring the tree of each node, or of those named, to the layout that is configured now.

    A node whose reshape fails is reported and does not stop the others.

    :raises ComputeHostNotFound: a node named is not managed here; nothing was changed.
    :raises ComputeAgentError: placement or the driver cannot be used.
    """
    nodes = parts.setup.nodes()
    unknown = sorted(set(only) - set(nodes))
    if unknown:
        raise errors.ComputeHostNotFound(
            f"The driver manages no node {', '.join(unknown)}; it manages "
            f"{', '.join(sorted(nodes)) or 'none'}. Nothing was changed."
        )
    tracker = parts.tracker(
        is_enabled=lambda: parts.ledger.service_state(default_enabled=True).enabled,
        wait=lambda _seconds: False,
    )
    chosen = [name for name in nodes if not only or name in only]
    return [_migrate_node(parts, tracker, name, nodes[name], dry_run=dry_run) for name in chosen]


def _migrate_node(
    parts: AgentParts, tracker: ResourceTracker, name: str, uuid: str, *, dry_run: bool
) -> NodeResult:
    began = time.monotonic()
    tracker.add_node(name, uuid)
    operations: list[Operation] = []
    reshaped, consumers = False, 0
    failure = None
    try:
        proposal = tracker.propose(name)
        if proposal.problems:
            raise proposal.problems[0]
        operations = [
            operation
            for operation in parts.node_pass.operations(proposal)
            if not isinstance(operation, KeepProvider)
        ]
        if proposal.allocations is not None:
            before = proposal.original_allocations or {}
            reshaped = True
            consumers = sum(
                record != before.get(consumer) for consumer, record in proposal.allocations.items()
            )
        if operations and not dry_run:
            parts.node_pass.flush(proposal)
    except (errors.ReshapeFailed, errors.ResourceProviderUpdateFailed) as error:
        failure = str(error)
    return NodeResult(
        name,
        uuid,
        tuple(describe(operation) for operation in operations),
        reshaped,
        consumers,
        time.monotonic() - began,
        failure,
    )
