"""Synchronisation of host aggregates to placement, where `member_of` finds them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from compute_agent import errors
from compute_agent.placement import provider_directory
from compute_agent.placement.provider_directory import ProviderDirectory

if TYPE_CHECKING:
    from compute_agent.report.client import ReportClient
    from compute_agent.scheduler.fleet.aggregates import Aggregate

Progress = Callable[[str, int, int], None]


class SyncProblemKind(Enum):
    """The reason why a host could not be put into its aggregates."""

    SEVERAL_NODES = "has more than one node"
    WRITE_FAILED = "could not be written"
    UNKNOWN_HOST = "is not known"
    NO_NODE = "has no node"
    NO_PROVIDER = "has a node without resource provider"


@dataclass(frozen=True, slots=True)
class SyncProblem:
    """A host that was left as it is, with the reason."""

    host: str
    trouble: SyncProblemKind
    detail: str


@dataclass(frozen=True, slots=True)
class AggregateDifference:
    """Aggregates that a host's root provider is, or would be, put into and taken out of."""

    host: str
    provider: str
    added_aggregates: tuple[str, ...]
    removed_aggregates: tuple[str, ...]


@dataclass(slots=True)
class SyncResult:
    """Changes that were or would be made, hosts with problems, and an error that ended it early."""

    hosts: int = 0
    changes: list[AggregateDifference] = field(default_factory=list)
    problems: list[SyncProblem] = field(default_factory=list)
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
        hosts = {}
        for host in sorted(
            {host for listed_aggregate in self.aggregates for host in listed_aggregate.hosts}
        ):
            try:
                hosts[host] = self._root(host, directory, by_name)
            except _UnusableHost as unusable:
                result.problems.append(SyncProblem(host, *unusable.args))
                continue
            aggregates_of.setdefault(hosts[host], set()).update(
                aggregate.uuid for aggregate in self.aggregates if host in aggregate.hosts
            )
        names = {root: host for host, root in hosts.items()}
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

    def _root(self, host: str, directory: ProviderDirectory, by_name: Mapping[str, str]) -> str:
        nodes = self.nodes.get(host)
        if nodes is None:
            uuid = by_name.get(host)
            if uuid is None:
                detail = "no agent announces it, and placement has no resource provider of its name"
                raise _UnusableHost(SyncProblemKind.UNKNOWN_HOST, detail)
            if directory.root(uuid) != uuid or directory.is_shared(uuid):
                raise _UnusableHost(
                    SyncProblemKind.NO_NODE,
                    f"the resource provider of its name ({uuid}) is not a host",
                )
            return uuid
        if not nodes:
            raise _UnusableHost(SyncProblemKind.NO_NODE, "its agent announces none")
        if len(nodes) > 1:
            raise _UnusableHost(SyncProblemKind.SEVERAL_NODES, ", ".join(sorted(nodes)))
        node = next(iter(nodes))
        if node not in directory.providers:
            raise _UnusableHost(
                SyncProblemKind.NO_PROVIDER, f"placement has no resource provider {node}"
            )
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
                result.problems.append(SyncProblem(host, SyncProblemKind.WRITE_FAILED, str(error)))
                return
        result.changes.append(
            AggregateDifference(
                host, root, tuple(sorted(added_hosts)), tuple(sorted(removed_hosts))
            )
        )


class _UnusableHost(Exception):
    """A host that has no single root provider in placement; its arguments say why."""
