"""Remedies for the drift of an agent: delete what is proved to be gone, allocate for what runs.

Everything is opened when an audit has something to heal, and closed afterwards, so that an agent
with nothing to heal holds neither connections nor the modules for them.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from compute_agent import errors
from compute_agent.claims.guests import presence
from compute_agent.drift import orphans
from compute_agent.drift.audit import End, Treatment
from compute_agent.drift.healing.healer import State, healer_of
from compute_agent.drift.instances.source import catalogue_of, listing_source
from compute_agent.drift.orphans import Judgement, Verdict
from compute_agent.drift.wording import allocations
from compute_agent.placement import provider_directory
from compute_agent.placement.consumers import Consumers
from compute_agent.report.client import ReportClient

if TYPE_CHECKING:
    from oslo_config import cfg

    from compute_agent.drift.healing.healer import Healer
    from compute_agent.drift.instances.instance import (
        InstanceCatalogue,
        InstanceSource,
        Listing,
        PortSource,
    )
    from compute_agent.placement.consumers import Consumer
    from compute_agent.placement.provider_directory import ProviderDirectory
    from compute_agent.placement.transports.transport import Transport
    from compute_agent.state.ledger import Ledger
    from compute_agent.virt.driver import ComputeDriver


class Remedies(Struct, eq=False):
    """Remedies for drift on one host.

    :ivar way: to placement.
    :ivar closing: closes what they opened.
    """

    conf: cfg.ConfigOpts
    driver: ComputeDriver
    ledger: Ledger
    way: Transport
    closing: ExitStack
    _healer: Healer | None = None

    def delete_gone(self, root: str, suspects: Collection[str]) -> Iterator[Treatment]:
        """Delete what those suspects hold that do not exist any more.

        :param root: the root provider of the node that suspects them, whose agent this is.
        :raises ComputeAgentError: nobody could be asked.
        """
        ours = self.conf.compute_agent
        min_age = self._min_age()
        doubtful = []
        with ExitStack() as closing:
            consumers = Consumers(self.way, connections=ours.placement_connections)
            closing.callback(consumers.close)
            for consumer in consumers.read(sorted(suspects)):
                judgement = orphans.judge_alone(
                    consumer, min_age, knows_migrations=ours.instance_source != "agents"
                )
                if judgement is None:
                    doubtful.append(consumer)
                else:
                    yield _left(consumer, judgement)
            if not doubtful:
                return
            directory = provider_directory.read(consumers.placement)
            source = listing_source(self.conf, closing, is_for_few=True)
            listing = source.look(directory)
            here = presence(self.driver, self.ledger.claims().values(), time.time())
            for consumer in doubtful:
                if consumer.uuid in here.known_consumers:
                    yield Treatment(
                        consumer.uuid, End.LEFT, "runs here by now, or was claimed here"
                    )
                elif here.running_guests is None and not listing.complete:
                    # the other agents do not know what runs here either
                    yield Treatment(
                        consumer.uuid,
                        End.LEFT,
                        "keeps its allocations: the driver of this host cannot list what runs "
                        f"here, and the source of instances ({source.name}) knows it from its "
                        "agent only",
                    )
                else:
                    judgement = judgement_from(root, consumer, listing, directory, min_age)
                    yield _treat(consumers, consumer, judgement, source, listing)

    def allocate(self, node: str, instances: Collection[str]) -> Iterator[Treatment]:
        """Give instances that run on a node what their flavor, image and ports need.

        :raises ComputeAgentError: nobody could be asked.
        """
        catalogue, ports = catalogue_of(self.conf)
        for uuid in sorted(instances):
            try:
                yield self._allocate_for(node, uuid, catalogue, ports)
            except errors.PlacementUnavailable:
                raise
            except errors.ComputeAgentError as error:
                yield Treatment(uuid, End.FAILED, f"gets no allocations: {error}")

    def _allocate_for(
        self, node: str, uuid: str, catalogue: InstanceCatalogue, ports: PortSource
    ) -> Treatment:
        instance = next(catalogue.instances(uuid), None)
        if instance is None:
            reason = f"the source of instances ({catalogue.name}) does not know it"
            return Treatment(uuid, End.FAILED, f"gets no allocations: {reason}")
        if instance.provider_name != node:
            where = instance.provider_name or "no host"
            reason = f"the source of instances reports that it is on {where}"
            return Treatment(uuid, End.FAILED, f"gets no allocations: {reason}")
        if self._healer is None:
            report = ReportClient(self.way)
            self.closing.callback(report.close)
            self._healer = healer_of(
                self.conf,
                self.way,
                report,
                ports,
                devices_of=lambda instance: self.driver.get_instance_devices(instance.uuid),
            )
        outcome = self._healer.heal(instance, dry_run=False)
        if outcome.state is State.HEALED:
            new_amounts = allocations(outcome.after, self._healer.directory.name)
            return Treatment(
                uuid, End.HEALED, f"runs here and held nothing; now it holds {new_amounts}."
            )
        if outcome.state is State.WHOLE:
            return Treatment(uuid, End.HEALED, "has its allocations by now.")
        end = End.LEFT if outcome.state is State.SKIPPED else End.FAILED
        return Treatment(uuid, end, f"{outcome.state.value}: {outcome.detail}")

    def _min_age(self) -> float:
        """Return the minimum age of a consumer; a file knows only what is older than itself.

        The writer of the file began before, which the time of grace covers.
        """
        ours = self.conf.compute_agent
        grace = float(ours.audit_grace)
        if ours.instance_source != "file":
            return grace
        try:
            written_at = Path(ours.instance_file).stat().st_mtime
        except OSError as error:
            raise errors.InvalidConfiguration(
                f"The file of instances {ours.instance_file} cannot be read: {error}. Write it, or "
                "correct [compute_agent]instance_file."
            ) from error
        return grace + max(0.0, time.time() - written_at)


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
    judgement = orphans.judge(consumer, listing, directory, min_age)
    if judgement.verdict is not Verdict.ORPHAN:
        return judgement
    heard_roots = (listing.answered_roots - listing.silent) | {root}
    concerned_roots = {directory.root(u) for u in consumer.resources if not directory.is_shared(u)}
    if silent := concerned_roots - heard_roots:
        return Judgement(Verdict.UNKNOWN, orphans.why_silent(silent, listing, directory))
    return judgement


def _treat(
    consumers: Consumers,
    consumer: Consumer,
    judgement: Judgement,
    source: InstanceSource,
    listing: Listing,
) -> Treatment:
    judgement = orphans.confirmed(judgement, consumer, source)
    if judgement.verdict is not Verdict.ORPHAN:
        return _left(consumer, judgement)
    if reason := orphans.delete(consumers, consumer, listing):
        return Treatment(consumer.uuid, End.FAILED, f"keeps its allocations: {reason}")
    return Treatment(
        consumer.uuid,
        End.HEALED,
        f"does not exist any more (source of instances: {source.name}): its allocations "
        f"were deleted, which were {allocations(consumer.resources, str)}.",
    )


def _left(consumer: Consumer, judgement: Judgement) -> Treatment:
    reason = judgement.reason or f"it {judgement.verdict.value}"
    return Treatment(consumer.uuid, End.LEFT, f"keeps its allocations: {reason}")
