"""Filters in order, and the record of the hosts that each rejected."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import islice

from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.filters.host_filter import HostFilter
from compute_agent.scheduler.host_state import NO_CELL, Hosts, HostState
from compute_agent.scheduler.outcomes import SHOWN_HOSTS, FilterCause, RejectedHost
from compute_agent.scheduler.search.targets import Target

LOG = logging.getLogger(__name__)


def run_filters(
    filters: Sequence[HostFilter], found_hosts: Sequence[HostState], spec: RequestSpec
) -> tuple[Hosts, list[FilterCause]]:
    """Return the hosts that pass all filters, and what each filter left; stops at none left."""
    remaining_hosts, causes = Hosts.of(found_hosts), list[FilterCause]()
    for host_filter in filters:
        if not remaining_hosts:
            break
        hosts_before = remaining_hosts
        if host_filter.concerns(spec):
            remaining_hosts = Hosts.of(host_filter.filter_all(remaining_hosts, spec))
        causes.append(
            FilterCause(
                host_filter.name,
                len(hosts_before),
                len(remaining_hosts),
                remaining_hosts.names(SHOWN_HOSTS),
                _rejected_hosts(host_filter, hosts_before, remaining_hosts, spec),
            )
        )
        LOG.debug(
            "%s left %d of %d hosts", host_filter.name, len(remaining_hosts), len(hosts_before)
        )
    return remaining_hosts, causes


def run_exclusions(
    spec: RequestSpec,
    target: Target,
    hosts: Hosts,
) -> tuple[Hosts, list[FilterCause]]:
    """Return the hosts that the request itself does not exclude, and what excluded the others."""
    ignored_names = spec.ignore_hosts | spec.retried_hosts
    destination = spec.destination
    exclusions: tuple[tuple[str, object, Callable[[HostState], bool]], ...] = (
        ("the named host", target.names, target.admits),
        ("ignore_hosts", ignored_names, lambda host: ignored_names.isdisjoint(host.known_as)),
        (
            "the cell of the destination",
            destination.cell and not destination.allow_cross_cell_move,
            lambda host: host.cell in (destination.cell, NO_CELL),
        ),
    )
    remaining_hosts, causes = hosts, []
    for name, is_asked, admits in exclusions:
        if not is_asked:
            continue
        admitted_hosts = remaining_hosts.where([*map(admits, remaining_hosts)])
        if len(admitted_hosts) < len(remaining_hosts):
            names = admitted_hosts.names(SHOWN_HOSTS)
            rejected_hosts = [host for host in remaining_hosts if not admits(host)]
            causes.append(
                FilterCause(
                    name,
                    len(remaining_hosts),
                    len(admitted_hosts),
                    names,
                    tuple(RejectedHost(host.name) for host in rejected_hosts[:SHOWN_HOSTS]),
                )
            )
        remaining_hosts = admitted_hosts
    return remaining_hosts, causes


def _rejected_hosts(
    host_filter: HostFilter,
    before: Sequence[HostState],
    remaining_hosts: Sequence[HostState],
    spec: RequestSpec,
) -> tuple[RejectedHost, ...]:
    if len(before) == len(remaining_hosts):
        return ()
    left_roots = set(Hosts.of(remaining_hosts).uuids)
    rejected_hosts = (host for host in before if host.uuid not in left_roots)
    return tuple(
        RejectedHost(host.name, host_filter.reason(host, spec))
        for host in islice(rejected_hosts, SHOWN_HOSTS)
    )
