"""Contract of a filter, which decides whether a host may take a request, and the run of several."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from msgspec import Struct

from compute_agent.request.pci_aliases import PciAlias
from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.host_state import Hosts, HostState
from compute_agent.scheduler.outcomes import SHOWN_HOSTS, FilterCause, RejectedHost

LOG = logging.getLogger(__name__)


class FilterOptions(Struct, frozen=True):
    """Options that filters look at."""

    max_io_ops_per_host: int = 8
    max_instances_per_host: int = 50
    isolated_images: frozenset[str] = frozenset()
    isolated_hosts: frozenset[str] = frozenset()
    restrict_isolated_hosts_to_isolated_images: bool = True
    default_architecture: str = ""
    image_properties_namespace: str = ""
    image_properties_separator: str = "."
    pci_in_placement: bool = False
    pci_aliases: Mapping[str, PciAlias] = {}


class HostFilter:
    """Base of all filters; override `host_passes`, or `filter_all` to see all hosts at once.

    `run_filter_once_per_request`: with several instances, run for the first of them only.
    `RUN_ON_REBUILD`: run also when an instance is rebuilt where it is.
    """

    run_filter_once_per_request = False
    RUN_ON_REBUILD = False

    def __init__(self, options: FilterOptions | None = None) -> None:
        self.options = options or FilterOptions()

    @property
    def name(self) -> str:
        """The name under which the filter is enabled and reported."""
        return type(self).__name__

    def concerns(self, spec: RequestSpec) -> bool:  # noqa: ARG002 - for others
        """Return whether a request asks for anything of this filter; else all hosts pass."""
        return True

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        """Return whether `host` may take the request `spec`."""
        raise TypeError(
            f"{self.name} defines neither host_passes nor filter_all: cannot judge {host.name} for "
            f"project {spec.project_id}"
        )

    def filter_all(self, hosts: Sequence[HostState], spec: RequestSpec) -> Iterable[HostState]:
        """Yield the hosts that may take the request `spec`."""
        return (host for host in hosts if self.host_passes(host, spec))

    def reason(self, host: HostState, spec: RequestSpec) -> str:  # noqa: ARG002 - for others
        """Return why `host`, which was rejected, was; "" where the name of the filter says it."""
        return ""


def run_filters(
    filters: Sequence[HostFilter], found_hosts: Sequence[HostState], spec: RequestSpec
) -> tuple[Hosts, list[FilterCause]]:
    """Return the hosts that pass all filters, and what each filter left; stops at none left."""
    remaining_hosts, causes = Hosts.of(found_hosts), list[FilterCause]()
    for host_filter in filters:
        if not remaining_hosts:
            break
        before = remaining_hosts
        if host_filter.concerns(spec):
            remaining_hosts = Hosts.of(host_filter.filter_all(before, spec))
        rejected_hosts: Iterable[HostState] = ()
        if len(remaining_hosts) < len(before):
            left_roots = set(remaining_hosts.uuids)
            rejected_hosts = (host for host in before if host.uuid not in left_roots)
        causes.append(
            FilterCause(
                host_filter.name,
                len(before),
                len(remaining_hosts),
                remaining_hosts.names(SHOWN_HOSTS),
                tuple(
                    RejectedHost(host.name, host_filter.reason(host, spec))
                    for host in islice(rejected_hosts, SHOWN_HOSTS)
                ),
            )
        )
        LOG.debug("%s left %d of %d hosts", host_filter.name, len(remaining_hosts), len(before))
    return remaining_hosts, causes
