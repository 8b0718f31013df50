"""The command `sync_aggregates`: host aggregates, mirrored to placement."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from compute_agent import errors
from compute_agent.cmd.manage.options import (
    BadArgument,
    ManageParser,
    add_common,
    configuration,
    transport,
)
from compute_agent.cmd.progress import ProgressBars, progress_bars
from compute_agent.drift.wording import count_of
from compute_agent.programs.exit_status import ExitStatus, exit_table

if TYPE_CHECKING:
    from oslo_config import cfg

    from compute_agent.manage.aggregates import SyncResult
    from compute_agent.scheduler.fleet.aggregates import Aggregate


class SyncExit(ExitStatus):
    """Exit status of `sync_aggregates`; of several problems the first of this list counts."""

    DONE = 0, "success, also with --dry-run"
    UNEXPECTED_ANSWER = 2, "placement cannot be used, or gave an unexpected answer"
    WRITE_FAILED = 3, "the aggregates of a provider could not be written"
    SEVERAL_NODES = 1, "a host has more than one node"
    UNKNOWN_HOST = 4, "a host of an aggregate is unknown"
    NO_NODE = 5, "a host has no node"
    NO_PROVIDER = 6, "a node has no resource provider"
    BAD_ARGUMENTS = 127, "bad arguments or configuration"


STATUS = exit_table(
    "A problem of one host does not stop the others. After several kinds of problems, the",
    "exit status is the first of 3, 1, 4, 5, 6.",
    statuses=SyncExit,
)


def add_command(commands: argparse._SubParsersAction[ManageParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "sync_aggregates",
        help="put hosts into the aggregates of [compute_scheduler]aggregate_source",
        description="Put the root provider of each host into the aggregates of the host in\n"
        "placement, so that member_of finds it. In Nova: nova-manage placement sync_aggregates.",
        epilog=STATUS,
    )
    add_common(parser, _sync, exit_of)
    parser.add_argument(
        "--prune",
        action="store_true",
        help="also remove hosts from aggregates that no longer list them",
    )


def exit_of(error: errors.ComputeAgentError) -> int:
    """Return the exit status of an error."""
    if isinstance(error, errors.PlacementError):
        return SyncExit.UNEXPECTED_ANSWER
    # no status is free for the configuration, and 1 is about a host
    return SyncExit.BAD_ARGUMENTS


def _sync(namespace: argparse.Namespace) -> int:
    from compute_agent.manage.aggregates import AggregateSync
    from compute_agent.report.client import ReportClient

    conf = configuration(namespace)
    aggregates = _aggregates(conf)
    report = ReportClient(transport(namespace, conf))
    report.connect()
    with progress_bars() as bars:
        hosts = {host for aggregate in aggregates for host in aggregate.hosts}
        nodes = _announced_nodes(conf, hosts, bars)
        result = AggregateSync(
            report,
            aggregates,
            nodes,
            prune=namespace.prune,
            dry_run=namespace.dry_run,
            progress=bars.update,
        ).run()
    report.close()
    _print(result, namespace)
    if result.failure is not None:
        return SyncExit.UNEXPECTED_ANSWER
    troubles = {problem.trouble.name for problem in result.problems}
    return next((status for status in SyncExit if status.name in troubles), SyncExit.DONE)


def _aggregates(conf: cfg.ConfigOpts) -> Collection[Aggregate]:
    from compute_agent.scheduler.fleet.aggregates import source_of

    if not conf.compute_scheduler.aggregate_source:
        raise BadArgument(
            "[compute_scheduler]aggregate_source is not set, so there is nothing to mirror. Set it "
            "to the file that lists the aggregates and their hosts, or to nova."
        )
    return source_of(conf).current().all


def _announced_nodes(
    conf: cfg.ConfigOpts, hosts: Collection[str], bars: ProgressBars
) -> Mapping[str, Collection[str]]:
    """Return the nodes by host; empty without a bus, where the only node has the host's name."""
    if not conf.transport_url or not hosts:
        return {}
    from compute_agent.drift.instances.agents import AgentsOnBus

    agents = AgentsOnBus(conf)
    try:
        bars.show("waiting for the agents to announce themselves")
        return agents.announced_hosts(hosts)
    finally:
        agents.close()


def _print(result: SyncResult, namespace: argparse.Namespace) -> None:
    for problem in result.problems:
        print(
            f"compute-manage sync_aggregates: host {problem.host} {problem.trouble.value}: "
            f"{problem.detail}",
            file=sys.stderr,
        )
    if result.failure is not None:
        print(
            f"compute-manage sync_aggregates: it ended early: {result.failure}. What is listed was "
            "done; repeat the command for the rest.",
            file=sys.stderr,
        )
    if namespace.json:
        document = {
            "dry_run": namespace.dry_run,
            "hosts": result.hosts,
            "changes": [
                {
                    "host": change.host,
                    "provider": change.provider,
                    "added": change.added_aggregates,
                    "removed": change.removed_aggregates,
                }
                for change in result.changes
            ],
            "problems": [
                {
                    "host": problem.host,
                    "trouble": problem.trouble.name.lower(),
                    "detail": problem.detail,
                }
                for problem in result.problems
            ],
            "failure": None if result.failure is None else str(result.failure),
        }
        print(json.dumps(document, indent=2))
        return
    would = "would be " if namespace.dry_run else ""
    for change in result.changes:
        for aggregate in change.added_aggregates:
            print(f"{change.host} ({change.provider}): {would}added to {aggregate}")
        for aggregate in change.removed_aggregates:
            print(f"{change.host} ({change.provider}): {would}removed from {aggregate}")
    print(
        f"{count_of(result.hosts, 'host')}: {len(result.changes)} {would}changed, "
        f"{len(result.problems)} with problems"
    )
