"""The command `audit`: consumers that are gone, and other contradictions of allocations."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, closing
from typing import Any

from msgspec import Struct, to_builtins

from compute_agent import errors
from compute_agent.cmd import program
from compute_agent.cmd.manage.exit_statuses import AuditExit
from compute_agent.cmd.manage.options import configuration
from compute_agent.cmd.output import show
from compute_agent.cmd.screen import progress_bars
from compute_agent.drift import wording
from compute_agent.drift.instances.instance import InstanceSource, Listing
from compute_agent.drift.instances.source import listing_source
from compute_agent.drift.orphans import Judgement, Verdict, confirmed, delete, judge
from compute_agent.drift.wording import count_of
from compute_agent.placement import provider_directory
from compute_agent.placement.consumers import Consumer, Consumers
from compute_agent.placement.provider_directory import ProviderDirectory


def audit(namespace: argparse.Namespace) -> AuditExit:
    """Find orphans, and delete them if that is asked for."""
    conf = configuration(namespace)
    way = program.transport(namespace, conf)
    with progress_bars() as bars, ExitStack() as stack:
        source = listing_source(conf, stack, namespace.instances, bars.show)
        consumers = Consumers(
            way, connections=conf.compute_agent.placement_connections, progress=bars.update
        )
        stack.enter_context(closing(consumers))
        result = Audit(
            consumers,
            source,
            bars.wait,
            delete=namespace.delete and not namespace.dry_run,
            provider=namespace.resource_provider,
            min_age=namespace.min_age,
            host_age=namespace.host_age,
        ).run()
    show(namespace, _document(result, source.name), *_lines(result))
    for suspect in result.kept_orphans:
        print(f"not deleted {suspect.consumer.uuid}: {suspect.reason}", file=sys.stderr)
    if result.failure is not None:
        print(
            f"compute-manage placement audit: deleting ended early: {result.failure}. Repeat the "
            "command for the rest.",
            file=sys.stderr,
        )
    return _status(result)


def _status(result: AuditResult) -> AuditExit:
    if result.failure is not None:
        return AuditExit.ERROR
    if result.orphans:
        all_deleted = len(result.deleted_uuids) == len(result.orphans)
        return AuditExit.DELETED if all_deleted else AuditExit.FOUND
    return AuditExit.NOT_JUDGED if result.unjudged_consumers else AuditExit.NONE


def _document(result: AuditResult, source: str) -> dict[str, Any]:
    return {
        "source": source,
        "consumers": result.consumers,
        "young": result.young,
        "orphans": [_consumer(result, orphan) for orphan in result.orphans],
        "deleted": result.deleted_uuids,
        "kept": [{"uuid": s.consumer.uuid, "reason": s.reason} for s in result.kept_orphans],
        "unknown": [
            {**_consumer(result, s.consumer), "reason": s.reason} for s in result.unjudged_consumers
        ],
        "findings": to_builtins(result.findings),
        "failure": None if result.failure is None else str(result.failure),
    }


def _consumer(result: AuditResult, consumer: Consumer) -> dict[str, Any]:
    return {
        "uuid": consumer.uuid,
        "type": consumer.type,
        "project_id": consumer.record.get("project_id"),
        "age": consumer.age,
        "allocations": {
            uuid: {"name": result.directory.name(uuid), "resources": dict(resources)}
            for uuid, resources in consumer.resources.items()
        },
    }


def _lines(result: AuditResult) -> Iterator[str]:
    deleted_uuids = set(result.deleted_uuids)
    for consumer in result.orphans:
        state = "deleted" if consumer.uuid in deleted_uuids else "orphan"
        kind = consumer.type or "no type"
        yield f"{state} {consumer.uuid} ({kind}): {_holding(result, consumer)}"
    for suspect in result.unjudged_consumers:
        amounts = _holding(result, suspect.consumer)
        yield f"unknown {suspect.consumer.uuid}: {suspect.reason}; it holds {amounts}"
    for finding in result.findings:
        yield f"{finding.what} {finding.uuid}: {finding.detail}"
    yield (
        f"{count_of(result.consumers, 'consumer')}: {count_of(len(result.orphans), 'orphan')}, "
        f"{len(deleted_uuids)} deleted, "
        f"{len(result.unjudged_consumers)} could not be judged, {result.young} too young"
    )


def _holding(result: AuditResult, consumer: Consumer) -> str:
    return wording.allocations(consumer.resources, result.directory.name)


class Suspect(Struct, frozen=True):
    """A consumer with the reason why it is reported."""

    consumer: Consumer
    reason: str


class Finding(Struct, frozen=True):
    """Another contradiction, with its instance or provider."""

    what: str
    uuid: str
    detail: str = ""


class AuditResult(Struct):
    """Results of an audit.

    :ivar orphans: consumers that do not exist any more; with `delete`, in both looks.
    :ivar deleted_uuids: those whose allocations were deleted.
    :ivar kept_orphans: orphans that were to be deleted and were not, with the reason.
    :ivar unjudged_consumers: consumers that could not be judged.
    :ivar failure: the error that ended the deletion early.
    """

    directory: ProviderDirectory
    consumers: int = 0
    young: int = 0
    orphans: list[Consumer] = []
    deleted_uuids: list[str] = []
    kept_orphans: list[Suspect] = []
    unjudged_consumers: list[Suspect] = []
    findings: list[Finding] = []
    failure: errors.ComputeAgentError | None = None


class _Look(Struct, frozen=True):
    directory: ProviderDirectory
    listing: Listing
    judgements: tuple[tuple[Consumer, Judgement], ...]

    def having(self, verdict: Verdict) -> list[Consumer]:
        return [consumer for consumer, judgement in self.judgements if judgement.verdict is verdict]


class Audit(Struct, frozen=True):
    """One audit, its scope, and whether it deletes.

    :ivar wait: waits so many seconds between the two looks that come before a deletion.
    :ivar provider: only consumers that hold something of this one.
    :ivar min_age: seconds; a consumer written more recently is skipped.
    :ivar host_age: seconds without a write after which an empty tree without agent is reported.
    """

    consumers: Consumers
    source: InstanceSource
    wait: Callable[[float], None]
    delete: bool = False
    provider: str | None = None
    min_age: float = 3600.0
    host_age: float = 86400.0

    def run(self) -> AuditResult:
        """Look, and delete if that was asked for.

        :raises InvalidConfiguration: the source of instances cannot be used.
        :raises PlacementError: placement cannot be used; nothing was changed.
        """
        directory = provider_directory.read(self.consumers.placement)
        holders = self.consumers.on(self._chosen_uuids(directory))
        first = self._look(directory, holders)
        orphans = first.having(Verdict.ORPHAN)
        result = AuditResult(directory, consumers=len(holders))
        last = first
        if orphans and self.delete:
            self.wait(self.min_age / 2)
            again = [orphan.uuid for orphan in orphans]
            last = self._look(provider_directory.read(self.consumers.placement), again)
            orphans = last.having(Verdict.ORPHAN)
        result.orphans = orphans
        result.young = len(first.having(Verdict.YOUNG))
        looks = [first] if last is first else [first, last]
        result.unjudged_consumers = [
            Suspect(consumer, judgement.reason)
            for look in looks
            for consumer, judgement in look.judgements
            if judgement.verdict is Verdict.UNKNOWN
        ]
        result.findings = list(self._findings(directory, holders, first.listing))
        if self.delete:
            self._delete(result, last.listing)
        return result

    def _chosen_uuids(self, directory: ProviderDirectory) -> Collection[str]:
        only = self.provider
        if only is None:
            return directory.providers
        if only not in directory.providers:
            raise errors.ResourceProviderNotFound(
                f"--resource_provider: placement has no resource provider {only}. Nothing was "
                "changed."
            )
        return [only]

    def _look(self, directory: ProviderDirectory, uuids: Iterable[str]) -> _Look:
        listing = self.source.look(directory)
        # only consumers that the source does not know need a closer look
        suspects = self.consumers.read(
            uuid for uuid in uuids if uuid not in listing.known_consumers
        )
        judgements = tuple(
            (
                suspect,
                confirmed(
                    judge(suspect, listing, directory, self.min_age),
                    suspect,
                    self.source,
                ),
            )
            for suspect in suspects
        )
        return _Look(directory, listing, judgements)

    def _delete(self, result: AuditResult, listing: Listing) -> None:
        for consumer in result.orphans:
            try:
                reason = delete(self.consumers, consumer, listing)
            except errors.ComputeAgentError as error:
                result.failure = error
                return
            if reason:
                result.kept_orphans.append(Suspect(consumer, reason))
            else:
                result.deleted_uuids.append(consumer.uuid)

    # -- other contradictions ----------------------------------------------------------------

    def _findings(
        self, directory: ProviderDirectory, holders: dict[str, frozenset[str]], listing: Listing
    ) -> Iterator[Finding]:
        """Yield findings where all providers were read, and the source knows which hosts exist."""
        if self.provider is not None or (listing.complete and not listing.roots):
            return
        yield from self._instances(directory, holders, listing)
        yield from _ownerless(directory, listing)
        yield from self._without_agent(directory, holders, listing)

    def _instances(
        self, directory: ProviderDirectory, holders: dict[str, frozenset[str]], listing: Listing
    ) -> Iterator[Finding]:
        hosts_of: dict[str, list[str]] = {}
        for host, instances in sorted(listing.by_host.items()):
            for instance in instances:
                hosts_of.setdefault(instance, []).append(host)
        without = [instance for instance in sorted(hosts_of) if instance not in holders]
        # they may have got allocations since the providers were read
        claimed_consumers = {consumer.uuid for consumer in self.consumers.read(without)}
        for instance in without:
            if instance not in claimed_consumers:
                where = ", ".join(hosts_of[instance])
                yield Finding("instance without allocations", instance, f"runs on {where}")
        for instance, hosts in sorted(hosts_of.items()):
            held_roots = {
                directory.root(uuid)
                for uuid in holders.get(instance, ())
                if not directory.is_shared(uuid)
            }
            at_home = frozenset().union(*(listing.roots[host] for host in hosts))
            if held_roots and not held_roots & at_home:
                there = ", ".join(sorted(map(directory.name, held_roots)))
                detail = f"runs on {', '.join(hosts)}, holds resources of {there}"
                yield Finding("instance with allocations on another host", instance, detail)

    def _without_agent(
        self, directory: ProviderDirectory, holders: dict[str, frozenset[str]], listing: Listing
    ) -> Iterator[Finding]:
        in_use = {directory.root(uuid) for uuids in holders.values() for uuid in uuids}
        # an agent that does not list its instances exists anyway
        for root in sorted(directory.hosts & listing.silent - in_use - listing.untold.keys()):
            age = self.consumers.last_written(root)
            if age is not None and age >= self.host_age:
                detail = f"not written for {age / 3600:.0f} h, nothing is allocated of it"
                yield Finding("host without agent", root, f"{directory.name(root)}: {detail}")


def _ownerless(directory: ProviderDirectory, listing: Listing) -> Iterator[Finding]:
    """Yield trees that are neither a host's nor shared: no agent of this cloud reports them."""
    for provider in sorted(directory.roots, key=lambda root: root.uuid):
        reported_roots = listing.answered_roots | listing.untold.keys()
        is_host = provider.uuid in directory.hosts or provider.uuid in reported_roots
        if not is_host and not directory.is_shared(provider.uuid):
            yield Finding("provider without owner", provider.uuid, provider.name)
