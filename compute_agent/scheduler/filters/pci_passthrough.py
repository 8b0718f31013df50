"""Devices that a PCI alias names, near the guest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from compute_agent.request.candidate_request import GUEST_CELL_SUFFIX
from compute_agent.request.guest_numa import has_nodes, policies
from compute_agent.request.pci_aliases import PciAlias
from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.filters.host_filter import HostFilter
from compute_agent.scheduler.host_state import HostState
from compute_agent.scheduler.placement.candidates import Candidate, is_near


class PciPassthroughFilter(HostFilter):
    """Drop the candidates whose devices an alias does not allow, and hosts with none left.

    For a guest with NUMA nodes `is_near` says where the devices of its aliases, and
    accelerators, may be. Without `pci_in_placement` all hosts pass.
    """

    def concerns(self, spec: RequestSpec) -> bool:
        """Return whether devices may be too far from the guest."""
        return self.options.pci_in_placement and has_nodes(spec)

    def filter_all(self, hosts: Sequence[HostState], spec: RequestSpec) -> Iterator[HostState]:
        """Yield the hosts with the candidates that the aliases allow."""
        return _with_near_devices(hosts, spec, self.options.pci_aliases)


def _with_near_devices(
    hosts: Sequence[HostState], spec: RequestSpec, aliases: Mapping[str, PciAlias]
) -> Iterator[HostState]:
    for host in hosts:
        near_candidates = tuple(
            candidate for candidate in host.candidates if _is_near(candidate, host, spec, aliases)
        )
        if near_candidates or not host.candidates:
            yield host._replace(candidates=near_candidates)


def _is_near(
    candidate: Candidate, host: HostState, spec: RequestSpec, aliases: Mapping[str, PciAlias]
) -> bool:
    classes = {
        suffix: [name for uuid in uuids for name in candidate.allocations.get(uuid, ())]
        for suffix, uuids in candidate.mappings.items()
        if not GUEST_CELL_SUFFIX.fullmatch(suffix)
    }
    policy_of = policies(spec, aliases, classes)
    return is_near(candidate, host.providers, policy_of)
