"""Assembly of the parts that heal allocations, from a configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from compute_agent.drift.healing.healer import Healer, HealingOptions
from compute_agent.drift.healing.placement_choice import Placing
from compute_agent.placement import provider_directory
from compute_agent.placement.api import PlacementApi
from compute_agent.placement.connection import Connection
from compute_agent.request.flavor import RequestOptions
from compute_agent.request.pci_aliases import pci_aliases
from compute_agent.scheduler.placement.client import PlacementClient
from compute_agent.scheduler.search.search import HostSearch, HostSearchOptions

if TYPE_CHECKING:
    from oslo_config import cfg

    from compute_agent.drift.instances.instance import Instance, PortSource
    from compute_agent.placement.transports.transport import Transport
    from compute_agent.report.client import ReportClient
    from compute_agent.virt.driver import InstanceDevices


def healer_of(
    conf: cfg.ConfigOpts,
    way: Transport,
    report: ReportClient,
    ports: PortSource,
    *,
    devices_of: Callable[[Instance], InstanceDevices | None],
    force: bool = False,
    with_ports: bool = True,
    overcommit: bool = False,
) -> Healer:
    """Return a healer that knows the providers of this moment.

    :param way: to placement, which `report` uses too.
    :param devices_of: what a guest really holds; None where nobody can tell.
    :param force: take away what nothing asks for.
    :param with_ports: heal what ports need too.
    :param overcommit: ask for what exceeds the capacity of providers, for placement to refuse.
    :raises PlacementError: placement cannot be used.
    """
    report.connect()
    pci_is_counted = conf.filter_scheduler.pci_in_placement
    request = RequestOptions(
        limit=conf.scheduler.max_placement_results,
        pci_aliases=pci_aliases(conf.pci.alias) if pci_is_counted else None,
    )
    directory = provider_directory.read(PlacementApi(Connection(way)))
    placing = Placing(
        report,
        HostSearch(PlacementClient(way), HostSearchOptions(request=request)),
        directory,
        devices_of,
        overcommit=overcommit,
    )
    options = HealingOptions(request=request, force=force, ports=with_ports)
    return Healer(report, directory, placing, ports, options)
