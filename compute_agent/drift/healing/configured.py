"""Healing of drift by the agent: its audit joined with the instance source and the remedies.

Everything is opened when an audit has something to heal, and closed afterwards, so that an agent
with nothing to heal holds neither connections nor the modules for them.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from compute_agent import errors

if TYPE_CHECKING:
    from oslo_config import cfg

    from compute_agent.claims.guests import Presence
    from compute_agent.drift.healing.healer import Healer
    from compute_agent.drift.healing.outcome import Treatment
    from compute_agent.drift.instances.instance import PortSource
    from compute_agent.placement.transports.transport import Transport
    from compute_agent.state.ledger import Ledger
    from compute_agent.virt.driver import ComputeDriver


@contextmanager
def remedies(
    conf: cfg.ConfigOpts, driver: ComputeDriver, ledger: Ledger, way: Transport | None = None
) -> Iterator[Remedies]:
    """Yield the remedies for the drift of an agent.

    :param way: transport to placement, instead of the configured one.
    :raises InvalidConfiguration: the source of instances cannot be used.
    """
    from compute_agent.placement.transports.keystone import KeystoneTransport

    # a reload reports a fault and goes on, so it is checked again
    check_healing(conf)
    with ExitStack() as closing:
        yield Remedies(conf, driver, ledger, way or KeystoneTransport.from_conf(conf), closing)


@dataclass(frozen=True, slots=True)
class Remedies:
    """Remedies for drift, each made when it is needed."""

    conf: cfg.ConfigOpts
    driver: ComputeDriver
    ledger: Ledger
    way: Transport
    closing: ExitStack

    def delete_gone(self, root: str, suspects: Collection[str]) -> Iterator[Treatment]:
        """Delete what those suspects hold that do not exist any more.

        :param root: the root provider of the node that suspects them, whose agent this is.
        :raises ComputeAgentError: nobody could be asked.
        """
        from compute_agent.drift.healing.remedies import OrphanRemedy
        from compute_agent.drift.instances.configured import listing_source
        from compute_agent.placement.consumers import Consumers

        with ExitStack() as closing:
            consumers = Consumers(
                self.way, connections=self.conf.compute_agent.placement_connections
            )
            closing.callback(consumers.close)
            remedy = OrphanRemedy(
                consumers,
                lambda: listing_source(self.conf, closing, is_for_few=True),
                self._min_age,
                judges_migrations=self.conf.compute_agent.instance_source != "agents",
                here=self._here,
            )
            yield from remedy.delete_gone(root, suspects)

    def allocate(self, node: str, instances: Collection[str]) -> Iterator[Treatment]:
        """Give instances that run on a node what they need.

        :raises ComputeAgentError: nobody could be asked.
        """
        from compute_agent.drift.healing.remedies import MissingRemedy
        from compute_agent.drift.instances.configured import catalogue as configured_catalogue

        catalogue, ports = configured_catalogue(self.conf)
        remedy = MissingRemedy(catalogue, lambda: self._healer(ports))
        yield from remedy.allocate(node, instances)

    def _here(self) -> Presence:
        from compute_agent.claims.guests import presence

        return presence(self.driver, self.ledger.claims().values(), time.time())

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

    def _healer(self, ports: PortSource) -> Healer:
        from compute_agent.drift.healing.assembly import healer_of
        from compute_agent.report.client import ReportClient

        report = ReportClient(self.way)
        self.closing.callback(report.close)
        return healer_of(
            self.conf,
            self.way,
            report,
            ports,
            devices_of=lambda instance: self.driver.get_instance_devices(instance.uuid),
        )


def check_healing(conf: cfg.ConfigOpts) -> None:
    """Check that what is to heal drift can be asked.

    :raises InvalidConfiguration: names what is missing.
    """
    ours = conf.compute_agent
    healing_options = [name for name in ("heal_orphans", "heal_missing") if ours[name]]
    if not healing_options:
        return
    option_names = f"[compute_agent]{' and '.join(healing_options)}"
    if ours.instance_source == "file" and not ours.instance_file:
        raise errors.InvalidConfiguration(
            f"{option_names} with instance_source = file: name the file with "
            "[compute_agent]instance_file, or leave healing off."
        )
    if ours.instance_source != "agents":
        return
    if ours.heal_missing:
        raise errors.InvalidConfiguration(
            "[compute_agent]heal_missing with instance_source = agents: agents do not know the "
            "flavors of instances. Set instance_source to nova (with groups [nova] and [neutron]) "
            "or to file, or leave heal_missing off."
        )
    if not conf.transport_url:
        raise errors.InvalidConfiguration(
            f"{option_names} with instance_source = agents: without a message bus "
            "([DEFAULT]transport_url) the other agents cannot be asked what they run. Set it, or "
            "set instance_source to nova or to file, or leave healing off."
        )
