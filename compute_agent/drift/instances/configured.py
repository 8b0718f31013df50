"""The sources of instances that a configuration names. Each is imported where it is used."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from compute_agent import errors

if TYPE_CHECKING:
    from oslo_config import cfg

    from compute_agent.drift.instances.instance import InstanceCatalogue, PortSource
    from compute_agent.drift.instances.source import InstanceSource


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
    from compute_agent.drift.instances.source import AgentsSource, FileSource

    if file is not None or conf.compute_agent.instance_source == "file":
        return FileSource(file or configured_file(conf))
    if conf.compute_agent.instance_source == "nova":
        from compute_agent.drift.instances.nova import Compute, NovaByUuid, NovaSource

        compute = Compute.from_conf(conf)
        return NovaByUuid(compute) if is_for_few else NovaSource(compute, say)
    if not conf.transport_url:
        raise errors.InvalidConfiguration(
            "No message bus is configured ([DEFAULT]transport_url), so the agents cannot be asked "
            "what they run. Set it, name a file of all instances with --instances, or set "
            "[compute_agent]instance_source = nova and group [nova]."
        )
    from compute_agent.drift.instances.agents import AgentsOnBus, BusUnavailable

    try:
        agents = AgentsOnBus(conf)
    except BusUnavailable as error:
        raise errors.InvalidConfiguration(
            f"{error} Without it, name a file of all instances with --instances."
        ) from error
    closing.callback(agents.close)
    return AgentsSource(agents, say)


def catalogue(
    conf: cfg.ConfigOpts, file: Path | None = None
) -> tuple[InstanceCatalogue, PortSource]:
    """Return the sources of the needs of instances, and of their ports.

    :param file: that describes the instances, instead of what is configured.
    :raises InvalidConfiguration: no source can be used.
    """
    from compute_agent.drift.instances.file import InstanceFile
    from compute_agent.drift.instances.instance import DescribedPorts

    if file is not None or conf.compute_agent.instance_source == "file":
        return InstanceFile(file or configured_file(conf)), DescribedPorts()
    if conf.compute_agent.instance_source == "agents":
        raise errors.InvalidConfiguration(
            "[compute_agent]instance_source is agents, which do not know the flavors of instances. "
            "Set it to nova (with groups [nova] and [neutron]), or name a file that describes the "
            "instances with --instances (etc/instances.jsonl.sample shows how)."
        )
    from compute_agent.drift.instances.neutron import NeutronPorts
    from compute_agent.drift.instances.nova import Compute, NovaCatalogue

    return NovaCatalogue(Compute.from_conf(conf)), NeutronPorts.from_conf(conf)


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
