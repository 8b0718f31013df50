"""The command `sync_aggregates`: host aggregates, mirrored to placement for `member_of`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from dataclasses import KW_ONLY, dataclass
from typing import Final

from msgspec import Struct, to_builtins
from oslo_config import cfg

from compute_agent import errors
from compute_agent.cmd.manage.exit_statuses import SyncExit
from compute_agent.cmd.manage.options import BadArgument, configuration, report_client
from compute_agent.cmd.output import show
from compute_agent.cmd.screen import ProgressBars, progress_bars
from compute_agent.drift.instances.agents import AgentsOnBus
from compute_agent.drift.wording import count_of
from compute_agent.placement import provider_directory
from compute_agent.placement.provider_directory import ProviderDirectory
from compute_agent.report.client import ReportClient
from compute_agent.scheduler.fleet.aggregates import Aggregate, source_of

Progress = Callable[[str, int, int], None]

_PROBLEMS: Final = {
    SyncExit.SEVERAL_NODES: "has more than one node",
    SyncExit.WRITE_FAILED: "could not be written",
    SyncExit.UNKNOWN_HOST: "is not known",
    SyncExit.NO_NODE: "has no node",
    SyncExit.NO_PROVIDER: "has a node without resource provider",
}
"""The reasons why a host could not be put into its aggregates, as the status says them too."""


def sync_aggregates(namespace: argparse.Namespace) -> int:
    """Put hosts into their aggregates."""
    conf = configuration(namespace)
    aggregates = _aggregates(conf)
    report = report_client(namespace, conf)
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
    troubles = {problem.trouble for problem in result.problems}
    return next((status for status in SyncExit if status in troubles), SyncExit.DONE)


def _aggregates(conf: cfg.ConfigOpts) -> Collection[Aggregate]:
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
    with closing(AgentsOnBus(conf)) as agents:
        bars.show("waiting for the agents to announce themselves")
        return agents.announced_hosts(hosts)


def _print(result: SyncResult, namespace: argparse.Namespace) -> None:
    for problem in result.problems:
        print(
            f"compute-manage sync_aggregates: host {problem.host} {_PROBLEMS[problem.trouble]}: "
            f"{problem.detail}",
            file=sys.stderr,
        )
    if result.failure is not None:
        print(
            f"compute-manage sync_aggregates: it ended early: {result.failure}. What is listed was "
            "done; repeat the command for the rest.",
            file=sys.stderr,
        )
    document = {
        "dry_run": namespace.dry_run,
        "hosts": result.hosts,
        "changes": to_builtins(result.changes),
        "problems": [
            {**to_builtins(problem), "trouble": problem.trouble.name.lower()}
            for problem in result.problems
        ],
        "failure": None if result.failure is None else str(result.failure),
    }
    would = "would be " if namespace.dry_run else ""
    lines = [
        f"{change.host} ({change.provider}): {would}{what} {aggregate}"
        for change in result.changes
        for what, aggregates in (("added to", change.added), ("removed from", change.removed))
        for aggregate in aggregates
    ]
    lines.append(
        f"{count_of(result.hosts, 'host')}: {len(result.changes)} {would}changed, "
        f"{len(result.problems)} with problems"
    )
    show(namespace, document, *lines)


class SyncProblem(Struct, frozen=True):
    """A host that was left as it is, with the reason."""

    host: str
    trouble: SyncExit
    detail: str


class AggregateDifference(Struct, frozen=True):
    """Aggregates that a host's root provider is, or would be, put into and taken out of."""

    host: str
    provider: str
    added: tuple[str, ...]
    removed: tuple[str, ...]


class SyncResult(Struct):
    """Changes that were or would be made, hosts with problems, and an error that ended it early."""

    hosts: int = 0
    changes: list[AggregateDifference] = []
    problems: list[SyncProblem] = []
    failure: errors.PlacementError | None = None


@dataclass(frozen=True, slots=True)
class AggregateSync:
    """One synchronisation.

    :ivar nodes: host to its nodes' root providers, as the agents announce them; a host that is
        not in it is looked up by its name, which is then the name of its only node.
    """

    report: ReportClient
    aggregates: Collection[Aggregate]
    nodes: Mapping[str, Collection[str]]
    _: KW_ONLY
    prune: bool
    dry_run: bool
    progress: Progress = lambda _what, _done_count, _total: None

    def run(self) -> SyncResult:
        """Add what is missing, and with `prune` remove what the aggregates no longer list.

        A host with a problem is reported and does not stop the others.

        :raises PlacementError: placement cannot be used; nothing was changed.
        """
        result = SyncResult()
        directory = provider_directory.read(self.report.placement)
        by_name = {provider.name: provider.uuid for provider in directory.providers.values()}
        aggregates_of: dict[str, set[str]] = {}
        names: dict[str, str] = {}
        for host in sorted(
            {host for listed_aggregate in self.aggregates for host in listed_aggregate.hosts}
        ):
            root = self._root(host, directory, by_name)
            if isinstance(root, SyncProblem):
                result.problems.append(root)
                continue
            names[root] = host
            aggregates_of.setdefault(root, set()).update(
                aggregate.uuid for aggregate in self.aggregates if host in aggregate.hosts
            )
        leaving = self._leaving(directory, aggregates_of) if self.prune else {}
        result.hosts = len(names)
        roots = sorted({*aggregates_of, *leaving})
        for count, root in enumerate(roots):
            self.progress("aggregates of hosts", count, len(roots))
            host = names.get(root, directory.name(root))
            try:
                self._change(
                    result, host, root, aggregates_of.get(root, set()), leaving.get(root, set())
                )
            except errors.PlacementError as error:
                result.failure = error
                break
        return result

    def _root(
        self, host: str, directory: ProviderDirectory, by_name: Mapping[str, str]
    ) -> str | SyncProblem:
        nodes = self.nodes.get(host)
        if nodes is None:
            uuid = by_name.get(host)
            if uuid is None:
                detail = "no agent announces it, and placement has no resource provider of its name"
                return SyncProblem(host, SyncExit.UNKNOWN_HOST, detail)
            if directory.root(uuid) != uuid or directory.is_shared(uuid):
                detail = f"the resource provider of its name ({uuid}) is not a host"
                return SyncProblem(host, SyncExit.NO_NODE, detail)
            return uuid
        if not nodes:
            return SyncProblem(host, SyncExit.NO_NODE, "its agent announces none")
        if len(nodes) > 1:
            return SyncProblem(host, SyncExit.SEVERAL_NODES, ", ".join(sorted(nodes)))
        [node] = nodes
        if node not in directory.providers:
            detail = f"placement has no resource provider {node}"
            return SyncProblem(host, SyncExit.NO_PROVIDER, detail)
        return node

    def _leaving(
        self, directory: ProviderDirectory, wanted_members: Mapping[str, Collection[str]]
    ) -> dict[str, set[str]]:
        """Return hosts in placement with aggregates of the source that no longer list them.

        Providers that are not hosts stay: sharing providers have to be in aggregates.
        """
        leaving: dict[str, set[str]] = {}
        for aggregate in sorted(self.aggregates, key=lambda entry: entry.uuid):
            for uuid in provider_directory.members_of(self.report.placement, aggregate.uuid):
                if uuid in directory.hosts and aggregate.uuid not in wanted_members.get(uuid, ()):
                    leaving.setdefault(uuid, set()).add(aggregate.uuid)
        return leaving

    def _change(
        self, result: SyncResult, host: str, root: str, add: set[str], remove: set[str]
    ) -> None:
        present = self.report.placement.providers.aggregates(root, host).content
        added_hosts, removed_hosts = add - present, remove & present
        if not added_hosts and not removed_hosts:
            return
        if not self.dry_run:
            try:
                self.report.change_aggregates(root, add=added_hosts, remove=removed_hosts)
            except (
                errors.ResourceProviderUpdateFailed,
                errors.ResourceProviderUpdateConflict,
                errors.ResourceProviderNotFound,
            ) as error:
                result.problems.append(SyncProblem(host, SyncExit.WRITE_FAILED, str(error)))
                return
        result.changes.append(
            AggregateDifference(
                host, root, tuple(sorted(added_hosts)), tuple(sorted(removed_hosts))
            )
        )
