"""Healing of drift by the agent: its audit joined with the instance source and the remedies.

Everything is opened when an audit has something to heal, and closed afterwards, so that an agent
with nothing to heal holds neither connections nor the modules for them.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from compute_agent import errors

if TYPE_CHECKING:
    from compute_agent.agent.assembly import AgentParts
    from compute_agent.claims.guests import Presence
    from compute_agent.drift.healing.healer import Healer
    from compute_agent.drift.instances.instance import InstanceCatalogue, PortSource
    from compute_agent.drift.instances.source import InstanceSource
    from compute_agent.drift.repair import Remedies, Treated
    from compute_agent.placement.transports.transport import Transport


@contextmanager
def remedies(parts: AgentParts, way: Transport | None = None) -> Iterator[Remedies]:
    """Yield the remedies for the drift of an agent.

    :param way: transport to placement, instead of the configured one.
    :raises InvalidConfiguration: the source of instances cannot be used.
    """
    from compute_agent.agent.assembly import check_healing
    from compute_agent.placement.transports.keystone import KeystoneTransport

    # a reload reports a fault and goes on, so it is checked again
    check_healing(parts.conf)
    with ExitStack() as closing:
        yield _ConfiguredRemedies(parts, way or KeystoneTransport.from_conf(parts.conf), closing)


class _ConfiguredRemedies:
    """Remedies, each made when it is needed."""

    def __init__(self, parts: AgentParts, way: Transport, closing: ExitStack) -> None:
        self._parts = parts
        self._conf = parts.conf
        self._way = way
        self._closing = closing

    def delete_gone(self, root: str, suspects: Collection[str]) -> Iterator[Treated]:
        from compute_agent.drift.healing.remedies import OrphanRemedy
        from compute_agent.placement.consumers import Consumers

        with ExitStack() as closing:
            consumers = Consumers(
                self._way, connections=self._conf.compute_agent.placement_connections
            )
            closing.callback(consumers.close)
            remedy = OrphanRemedy(
                consumers,
                lambda: self._source(closing),
                self._min_age,
                judges_migrations=self._conf.compute_agent.instance_source != "agents",
                here=self._here,
            )
            yield from remedy.delete_gone(root, suspects)

    def allocate(self, node: str, instances: Collection[str]) -> Iterator[Treated]:
        from compute_agent.drift.healing.remedies import MissingRemedy

        catalogue, ports = self._catalogue()
        remedy = MissingRemedy(catalogue, lambda: self._healer(ports))
        yield from remedy.allocate(node, instances)

    def _here(self) -> Presence:
        from compute_agent.claims.guests import presence

        return presence(self._parts.driver, self._parts.ledger.claims().values(), time.time())

    def _min_age(self) -> float:
        """Return the minimum age of a consumer; a file knows only what is older than itself.

        The writer of the file began before, which the time of grace covers.
        """
        ours = self._conf.compute_agent
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

    def _source(self, closing: ExitStack) -> InstanceSource:
        from compute_agent.drift.instances.source import AgentsSource, FileSource

        kind = self._conf.compute_agent.instance_source
        if kind == "file":
            return FileSource(Path(self._conf.compute_agent.instance_file))
        if kind == "nova":
            from compute_agent.drift.healing.remedies import NovaByUuid
            from compute_agent.drift.instances.nova import Compute

            return NovaByUuid(Compute.from_conf(self._conf))
        from compute_agent.drift.instances.agents import AgentsOnBus

        agents = AgentsOnBus(self._conf)
        closing.callback(agents.close)
        return AgentsSource(agents)

    def _catalogue(self) -> tuple[InstanceCatalogue, PortSource]:
        from compute_agent.drift.instances.file import InstanceFile
        from compute_agent.drift.instances.instance import DescribedPorts

        if self._conf.compute_agent.instance_source == "file":
            return InstanceFile(Path(self._conf.compute_agent.instance_file)), DescribedPorts()
        from compute_agent.drift.instances.glance import Images
        from compute_agent.drift.instances.neutron import NeutronPorts
        from compute_agent.drift.instances.nova import Compute, NovaCatalogue

        nova = NovaCatalogue(Compute.from_conf(self._conf), Images.from_conf(self._conf))
        return nova, NeutronPorts.from_conf(self._conf)

    def _healer(self, ports: PortSource) -> Healer:
        from compute_agent.drift.healing.assembly import healer_of
        from compute_agent.report.client import ReportClient

        report = ReportClient(self._way)
        self._closing.callback(report.close)
        driver = self._parts.driver
        return healer_of(
            self._conf,
            self._way,
            report,
            ports,
            devices_of=lambda instance: driver.get_instance_devices(instance.uuid),
        )
