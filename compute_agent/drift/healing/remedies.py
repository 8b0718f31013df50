"""Remedies for drift on one host: delete what is proved to be gone, allocate for what runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING

from compute_agent import errors
from compute_agent.drift.healing.healer import State
from compute_agent.drift.healing.outcome import End, Treatment
from compute_agent.drift.instances.source import Listing
from compute_agent.drift.orphans import (
    INSTANCE,
    MIGRATION,
    Judgement,
    Verdict,
    confirmed,
    delete,
    judge,
    why_silent,
)
from compute_agent.drift.wording import allocations
from compute_agent.placement import provider_directory

if TYPE_CHECKING:
    from compute_agent.claims.guests import Presence
    from compute_agent.drift.healing.healer import Healer
    from compute_agent.drift.instances.instance import InstanceCatalogue
    from compute_agent.drift.instances.source import InstanceSource
    from compute_agent.placement.consumers import Consumer, Consumers
    from compute_agent.placement.provider_directory import ProviderDirectory


@dataclass(frozen=True, slots=True)
class OrphanRemedy:
    """Deletes what suspects hold that do not exist any more.

    :ivar open_source: opens the source, once there is a suspect that it could know of.
    :ivar min_age: seconds, at the moment; a consumer written more recently is left alone.
    :ivar judges_migrations: whether the source knows them; otherwise only instances are judged.
    :ivar here: who is known to be on this host, at the moment.
    """

    consumers: Consumers
    open_source: Callable[[], InstanceSource]
    min_age: Callable[[], float]
    _: KW_ONLY
    judges_migrations: bool
    here: Callable[[], Presence]

    def delete_gone(self, root: str, suspects: Collection[str]) -> Iterator[Treatment]:
        """As the protocol has it."""
        min_age = self.min_age()
        doubtful = []
        for consumer in self.consumers.read(sorted(suspects)):
            why_not = self._not_judged(consumer, min_age)
            if why_not:
                yield Treatment(consumer.uuid, End.LEFT, why_not)
            else:
                doubtful.append(consumer)
        if not doubtful:
            return
        directory = provider_directory.read(self.consumers.placement)
        source = self.open_source()
        listing = source.look(directory)
        here = self.here()
        for consumer in doubtful:
            if consumer.uuid in here.known_consumers:
                yield Treatment(consumer.uuid, End.LEFT, "runs here by now, or was claimed here")
            elif here.running_guests is None and not listing.complete:
                # the other agents do not know what runs here either
                yield Treatment(
                    consumer.uuid,
                    End.LEFT,
                    "keeps its allocations: the driver of this host cannot list what runs here, "
                    f"and the source of instances ({source.name}) knows it from its agent only",
                )
            else:
                judgement = judgement_from(root, consumer, listing, directory, min_age)
                yield self._treat(consumer, judgement, source, listing)

    def _not_judged(self, consumer: Consumer, min_age: float) -> str:
        """Why the source need not be asked about a consumer; empty where it must be."""
        if consumer.type not in (
            (INSTANCE, MIGRATION, None) if self.judges_migrations else (INSTANCE,)
        ):
            return (
                f"is a consumer of type {consumer.type or 'unknown'}, of which the source of "
                "instances knows nothing: its allocations are left alone"
            )
        if consumer.age is None:
            return "has allocations of an age that placement does not report: they are left alone"
        return "was written too recently to be judged" if consumer.age < min_age else ""

    def _treat(
        self, consumer: Consumer, judgement: Judgement, source: InstanceSource, listing: Listing
    ) -> Treatment:
        judgement = confirmed(judgement, consumer, source)
        if judgement.verdict is not Verdict.ORPHAN:
            reason = judgement.reason or judgement.verdict.value
            return Treatment(consumer.uuid, End.LEFT, f"keeps its allocations: {reason}")
        if reason := delete(self.consumers, consumer, listing):
            return Treatment(consumer.uuid, End.FAILED, f"keeps its allocations: {reason}")
        return Treatment(
            consumer.uuid,
            End.HEALED,
            f"does not exist any more (source of instances: {source.name}): its allocations "
            f"were deleted, which were {allocations(consumer.resources, str)}.",
        )


def judgement_from(
    root: str,
    consumer: Consumer,
    listing: Listing,
    directory: ProviderDirectory,
    min_age: float,
) -> Judgement:
    """Judge a consumer as the agent of one root may: what is on a silent tree is never gone.

    :param root: whose agent this is, so that it is not silent whatever others say.
    """
    judgement = judge(consumer, listing, directory, min_age)
    if judgement.verdict is not Verdict.ORPHAN:
        return judgement
    heard_roots = (listing.answered_roots - listing.silent) | {root}
    concerned_roots = {directory.root(u) for u in consumer.resources if not directory.is_shared(u)}
    if silent := concerned_roots - heard_roots:
        return Judgement(Verdict.UNKNOWN, why_silent(silent, listing, directory))
    return judgement


@dataclass(slots=True, eq=False)
class MissingRemedy:
    """Gives instances that run here what their flavor, image and ports need.

    :ivar catalogue: who knows what instances need.
    :ivar make_healer: called when the first instance is to be healed.
    """

    catalogue: InstanceCatalogue
    make_healer: Callable[[], Healer]
    _healer: Healer | None = field(default=None, init=False)

    def allocate(self, node: str, instances: Collection[str]) -> Iterator[Treatment]:
        """As the protocol has it."""
        for uuid in sorted(instances):
            try:
                yield self._allocate_for(node, uuid)
            except errors.PlacementUnavailable:
                raise
            except errors.ComputeAgentError as error:
                yield Treatment(uuid, End.FAILED, f"gets no allocations: {error}")

    def _allocate_for(self, node: str, uuid: str) -> Treatment:
        instance = next(self.catalogue.instances(uuid), None)
        if instance is None:
            reason = f"the source of instances ({self.catalogue.name}) does not know it"
            return Treatment(uuid, End.FAILED, f"gets no allocations: {reason}")
        if instance.provider_name != node:
            where = instance.provider_name or "no host"
            reason = f"the source of instances reports that it is on {where}"
            return Treatment(uuid, End.FAILED, f"gets no allocations: {reason}")
        if self._healer is None:
            self._healer = self.make_healer()
        outcome = self._healer.heal(instance, dry_run=False)
        if outcome.state is State.HEALED:
            new_amounts = allocations(outcome.after, self._healer.name_of)
            return Treatment(
                uuid, End.HEALED, f"runs here and held nothing; now it holds {new_amounts}."
            )
        if outcome.state is State.WHOLE:
            return Treatment(uuid, End.HEALED, "has its allocations by now.")
        end = End.LEFT if outcome.state is State.SKIPPED else End.FAILED
        return Treatment(uuid, end, f"{outcome.state.value}: {outcome.detail}")
