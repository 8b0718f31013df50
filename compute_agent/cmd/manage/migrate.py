"""The command `migrate_compute_inventory`: this host's layout, while no service runs.

It is the agent's own first pass, so it is always safe: without a difference it does nothing,
a second run finds nothing, and an interrupted one is completed by the next.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from msgspec import Struct, to_builtins

from compute_agent import errors
from compute_agent.agent import assembly
from compute_agent.agent.assembly import AgentParts
from compute_agent.cmd import program
from compute_agent.cmd.manage.exit_statuses import MigrateExit
from compute_agent.cmd.manage.options import BadArgument, configuration
from compute_agent.cmd.output import show
from compute_agent.drift.wording import count_of
from compute_agent.placement.connection import Clock, Retries
from compute_agent.report.steps import KeepProvider, describe
from compute_agent.state.files import AgentLock
from compute_agent.tracker.pass_attempt import as_one
from compute_agent.tracker.passes.node_pass import ReshapeNeededAgain
from compute_agent.tracker.resource_tracker import ResourceTracker

NOT_MIGRATED = (
    errors.ReshapeFailed,
    errors.ResourceProviderUpdateFailed,
    errors.ResourceProviderUpdateConflict,
    errors.InvalidInput,
    ReshapeNeededAgain,
)
"""Errors that keep one node from being migrated and do not concern the others."""


class NodeResult(Struct):
    """The steps that were, or would be, done for one node.

    :ivar operations: in words, in order; empty without a difference.
    :ivar consumers: how many consumers' allocations a reshape rewrote.
    :ivar failure: why the node was left as it was, if it was.
    """

    node: str
    uuid: str
    operations: tuple[str, ...] = ()
    reshaped: bool = False
    consumers: int = 0
    seconds: float = 0.0
    failure: str | None = None


def migrate(parts: AgentParts, nodes: Mapping[str, str], *, dry_run: bool) -> Iterator[NodeResult]:
    """Migrate the tree of each node to the configured layout, and yield the results.

    A node that cannot be migrated is reported and does not stop the others.

    :param nodes: name to uuid.
    :raises ComputeAgentError: placement or the driver cannot be used. The nodes yielded before are
        done; the next run finishes the rest.
    """
    tracker = parts.tracker(wait=lambda _seconds: False)
    retries = Retries(Clock())
    for name, uuid in nodes.items():
        tracker.add_node(name, uuid)
        result = NodeResult(name, uuid)
        began = time.monotonic()
        try:
            retries.while_conflicting(partial(_attempt, parts, tracker, result, dry_run=dry_run))
        except NOT_MIGRATED as error:
            result.failure = str(error)
        result.seconds = round(time.monotonic() - began, 3)
        yield result


def _attempt(
    parts: AgentParts, tracker: ResourceTracker, result: NodeResult, *, dry_run: bool
) -> None:
    """Read again, record what there is to do, and do it."""
    proposal = tracker.propose(result.node)
    if proposal.problems:
        raise as_one(proposal.problems)
    planned_transfers = [
        step for step in parts.node_pass.steps(proposal) if not isinstance(step, KeepProvider)
    ]
    result.operations = (
        *map(describe, planned_transfers),
        *(f"(in the reshape) {change}" for change in proposal.class_changes),
    )
    result.reshaped = proposal.allocations is not None
    if proposal.allocations is not None:
        before = proposal.original_allocations or {}
        result.consumers = sum(
            record != before.get(consumer) for consumer, record in proposal.allocations.items()
        )
    if not planned_transfers or dry_run:
        return
    try:
        parts.node_pass.flush(proposal)
    except errors.PlacementReshapeConflict as error:
        # to be repeated as any other conflict, from reading on
        raise errors.ResourceProviderUpdateConflict(str(error), status=error.status) from error


def migrate_compute_inventory(namespace: argparse.Namespace) -> int:
    """Migrate the nodes of this host."""
    conf = configuration(namespace)
    if namespace.plan is not None:
        # before anything is changed
        try:
            namespace.plan.open("a").close()
        except OSError as error:
            raise BadArgument(
                f"--plan {namespace.plan} cannot be written: {error.strerror}."
            ) from error
    state_path = Path(conf.state_path)
    if namespace.dry_run and state_path.is_dir():
        # read-only parts take no lock, but a running agent is refused anyway
        with AgentLock(state_path):
            pass
    parts = assembly.build(
        conf, read_only=namespace.dry_run, transport=program.transport(namespace, conf)
    )
    results: list[NodeResult] = []
    try:
        parts.report.connect()
        for result in migrate(parts, _chosen_nodes(parts, namespace), dry_run=namespace.dry_run):
            results.append(result)  # noqa: PERF402 - those before a failure are printed too
    except BaseException:
        if results:
            _print_results(results, namespace)
        raise
    finally:
        parts.close()
    _print_results(results, namespace)
    if any(result.failure for result in results):
        return MigrateExit.NOT_MIGRATED
    if namespace.dry_run and any(result.operations for result in results):
        return MigrateExit.WOULD_CHANGE
    return MigrateExit.FINE


def _chosen_nodes(parts: AgentParts, namespace: argparse.Namespace) -> dict[str, str]:
    nodes = parts.setup.nodes()
    unknown_nodes = sorted(set(namespace.node) - set(nodes))
    if unknown_nodes:
        raise BadArgument(
            f"--node: the driver does not manage node {', '.join(unknown_nodes)}; it manages "
            f"{', '.join(sorted(nodes)) or 'none'}. Nothing was changed."
        )
    return {name: nodes[name] for name in nodes if not namespace.node or name in namespace.node}


def _print_results(results: list[NodeResult], namespace: argparse.Namespace) -> None:
    document = {"dry_run": namespace.dry_run, "nodes": to_builtins(results)}
    for result in results:
        if result.failure is not None:
            print(f"{result.node}: not migrated: {result.failure}", file=sys.stderr)
    show(namespace, document, *(line for result in results for line in _lines(result, namespace)))
    if namespace.plan is not None:
        namespace.plan.write_text(json.dumps(document, indent=2) + "\n")


def _lines(result: NodeResult, namespace: argparse.Namespace) -> Iterator[str]:
    if result.failure is not None:
        return
    if not result.operations:
        yield f"{result.node}: nothing to do"
        return
    done_text = "would be done" if namespace.dry_run else f"done in {result.seconds:.1f} s"
    what = f"{count_of(len(result.operations), 'step')} {done_text}"
    if result.reshaped:
        what += f", a reshape with {count_of(result.consumers, 'consumer')} rewritten"
    yield f"{result.node}: {what}"
    yield from (f"  {step}" for step in result.operations)
