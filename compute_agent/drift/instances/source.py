"""The sources of instances that a configuration names. Each is imported where it is used."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from compute_agent import errors

if TYPE_CHECKING:
    from oslo_config import cfg

    from compute_agent.drift.instances.instance import (
        InstanceCatalogue,
        InstanceSource,
        PortSource,
    )


def listing_source(
    conf: cfg.ConfigOpts,
    closing: ExitStack,
    file: Path | None = None,
    say: Callable[[str], None] = lambda _text: None,
    *,
    is_for_few: bool = False,
) -> InstanceSource:
    """Return the source that lists the instances.

    :param closing: closes it.
    :param file: of all instances, instead of what is configured.
    :param is_for_few: whether few suspects will be asked about, one by one.
    :raises InvalidConfiguration: no source can be used.
    """
    if file is not None or conf.compute_agent.instance_source == "file":
        from compute_agent.drift.instances.file import InstanceFile

        return InstanceFile(file or configured_file(conf))
    if conf.compute_agent.instance_source == "nova":
        from compute_agent.drift.instances.openstack import Nova
        from compute_agent.openstack.service import Service

        return Nova(Service(conf, "nova", "Nova"), say, is_for_few=is_for_few)
    if not conf.transport_url:
        raise errors.InvalidConfiguration(
            "No message bus is configured ([DEFAULT]transport_url), so the agents cannot be asked "
            "what they run. Set it, name a file of all instances with --instances, or set "
            "[compute_agent]instance_source = nova and group [nova]."
        )
    from compute_agent.drift.instances.agents import AgentsOnBus, BusUnavailable

    try:
        agents = AgentsOnBus(conf, say)
    except BusUnavailable as error:
        raise errors.InvalidConfiguration(
            f"{error} Without it, name a file of all instances with --instances."
        ) from error
    closing.callback(agents.close)
    return agents


def catalogue_of(
    conf: cfg.ConfigOpts, file: Path | None = None
) -> tuple[InstanceCatalogue, PortSource]:
    """Return the sources of the needs of instances, and of their ports.

    :param file: that describes the instances, instead of what is configured.
    :raises InvalidConfiguration: no source can be used.
    """
    if file is not None or conf.compute_agent.instance_source == "file":
        from compute_agent.drift.instances.file import DescribedPorts, InstanceFile

        return InstanceFile(file or configured_file(conf)), DescribedPorts()
    if conf.compute_agent.instance_source == "agents":
        raise errors.InvalidConfiguration(
            "[compute_agent]instance_source is agents, which do not know the flavors of instances. "
            "Set it to nova (with groups [nova] and [neutron]), or name a file that describes the "
            "instances with --instances (etc/instances.jsonl.sample shows how)."
        )
    from compute_agent.drift.instances.openstack import NeutronPorts, Nova
    from compute_agent.openstack.service import Service

    neutron = Service(conf, "neutron", "Neutron", version="/v2.0")
    return Nova(Service(conf, "nova", "Nova")), NeutronPorts(neutron)


def configured_file(conf: cfg.ConfigOpts) -> Path:
    """Return the file of instances that is configured.

    :raises InvalidConfiguration: there is none.
    """
    file = conf.compute_agent.instance_file
    if not file:
        raise errors.InvalidConfiguration(
            "[compute_agent]instance_source is file: name the file with --instances, or with "
            "[compute_agent]instance_file."
        )
    return Path(file)


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
