"""Contract of a filter, which decides whether a host may take a request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from compute_agent.request.pci_aliases import PciAlias
from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.host_state import HostState


@dataclass(frozen=True, slots=True)
class FilterOptions:
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
    pci_aliases: Mapping[str, PciAlias] = field(default_factory=dict)


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
