"""Audit of allocations: consumers that are gone, and other contradictions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field

from compute_agent import errors
from compute_agent.drift.instances.source import InstanceSource, Listing
from compute_agent.drift.orphans import Judgement, Verdict, confirmed, delete, judge
from compute_agent.placement import provider_directory
from compute_agent.placement.consumers import Consumer, Consumers
from compute_agent.placement.provider_directory import ProviderDirectory


@dataclass(frozen=True, slots=True)
class Suspect:
    """A consumer with the reason why it is reported."""

    consumer: Consumer
    reason: str


@dataclass(frozen=True, slots=True)
class Finding:
    """Another contradiction, with its instance or provider."""

    what: str
    uuid: str
    detail: str = ""


@dataclass(slots=True)
class AuditResult:
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
    orphans: list[Consumer] = field(default_factory=list)
    deleted_uuids: list[str] = field(default_factory=list)
    kept_orphans: list[Suspect] = field(default_factory=list)
    unjudged_consumers: list[Suspect] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    failure: errors.ComputeAgentError | None = None


@dataclass(frozen=True, slots=True)
class _Look:
    directory: ProviderDirectory
    listing: Listing
    judgements: tuple[tuple[Consumer, Judgement], ...]

    def having(self, verdict: Verdict) -> list[Consumer]:
        return [consumer for consumer, judgement in self.judgements if judgement.verdict is verdict]


@dataclass(frozen=True, slots=True)
class Audit:
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
