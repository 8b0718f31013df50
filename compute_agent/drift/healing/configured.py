"""Healing of drift as an agent is configured: what it takes, and the remedies when it is needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from compute_agent import errors

if TYPE_CHECKING:
    from oslo_config import cfg

    from compute_agent.drift.healing.remedies import Remedies
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
    # loaded for an agent that has something to heal
    from compute_agent.drift.healing.remedies import Remedies
    from compute_agent.placement.transports.keystone import KeystoneTransport

    # a reload reports a fault and goes on, so it is checked again
    check_healing(conf)
    with ExitStack() as closing:
        yield Remedies(conf, driver, ledger, way or KeystoneTransport.from_conf(conf), closing)


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
