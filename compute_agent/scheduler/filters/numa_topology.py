"""Guests on hosts with NUMA cells, as the planner fits them, with their devices near them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from compute_agent.fitting.announced import host_of
from compute_agent.fitting.guest import Guest, Wish
from compute_agent.fitting.host import Host
from compute_agent.fitting.plan import Plan, Refusal
from compute_agent.fitting.planner import plan
from compute_agent.provider_tree.trait_names import HW_NUMA_ROOT, PAGE_SIZE_PREFIX
from compute_agent.request import flavor_settings
from compute_agent.request.candidate_request import GUEST_CELL_SUFFIX
from compute_agent.request.guest_numa import (
    guest_numa,
    has_nodes,
    is_device,
    planned_guest,
    policies,
)
from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.filters.host_filter import HostFilter
from compute_agent.scheduler.host_state import HostState
from compute_agent.scheduler.placement.candidates import Candidate, is_near

LOG = logging.getLogger(__name__)


class NUMATopologyFilter(HostFilter):
    """Drop the candidates that do not fit the guest's NUMA nodes, and hosts with none left.

    On a host with providers for its cells every node of the guest must be on a cell of its own,
    with its huge pages below that cell. Of another host the agent announces what is free of cells
    and devices; the planner says whether the guest fits there. A host that announces nothing is
    left to its agent.
    """

    def filter_all(self, hosts: Sequence[HostState], spec: RequestSpec) -> Iterator[HostState]:
        """Yield the hosts with the candidates that fit."""
        for host in hosts:
            if not any(map(_cells, host.candidates)):
                answer = self._answer(host, spec)
                if answer is None:
                    yield host
                elif isinstance(answer, Plan):
                    yield host._replace(cost=answer.cost)
                elif answer.is_undecided:
                    LOG.warning("Host %s is left out: %s.", host.name, answer.sentence)
                continue
            fitting_candidates = tuple(
                candidate for candidate in host.candidates if _is_apart(candidate, host)
            )
            if fitting_candidates:
                yield host._replace(candidates=fitting_candidates)

    def reason(self, host: HostState, spec: RequestSpec) -> str:
        """Return why the guest does not fit on a host, in the words of its agent."""
        answer = None if any(map(_cells, host.candidates)) else self._answer(host, spec)
        return answer.sentence if isinstance(answer, Refusal) else ""

    def _answer(self, host: HostState, spec: RequestSpec) -> Plan | Refusal | None:
        """Return what the planner says of a flat host; None where it announces no cells."""
        announced = host_of(host.announcement.attributes) if host.announcement else None
        if announced is None or HW_NUMA_ROOT in host.traits:
            return None
        guest = _guest_of(spec, announced, self._wishes(host, announced, spec))
        return plan(announced, guest)

    def _wishes(self, host: HostState, announced: Host, spec: RequestSpec) -> Iterator[Wish]:
        """Yield the devices of the candidates, each of any provider of the host.

        Which of them a group may have by its traits the plan of the host looks at.
        """
        known_classes = {device.resource_class for device in announced.devices}
        classes = {
            suffix: [name]
            for candidate in host.candidates
            for suffix, uuids in candidate.mappings.items()
            for name in (candidate.allocations.get(uuids[0], ()) if suffix else ())
            if is_device(name) and name in known_classes
        }
        policy_of = policies(spec, self.options.pci_aliases, classes)
        for suffix, [name] in sorted(classes.items()):
            yield Wish(suffix, name, nearness=policy_of.get(suffix, ""))


def _guest_of(spec: RequestSpec, host: Host, wishes: Iterator[Wish]) -> Guest:
    """Return what a guest needs of a host with these cells."""
    vcpu, pcpu = flavor_settings.pinned_cpus(spec, spec.flavor.vcpus)
    sizes = {size for cell in host.cells for size in cell.pages_mib}
    traits = [f"{PAGE_SIZE_PREFIX}{size}" for size in sorted(sizes)]
    numa = guest_numa(spec, vcpu, pcpu, spec.flavor.memory_mb, traits)
    return replace(planned_guest(spec, numa, sizes), wishes=tuple(wishes))


def _cells(candidate: Candidate) -> dict[str, str]:
    """Return the cells of the nodes that a candidate names, by suffix."""
    return {
        suffix: uuids[0]
        for suffix, uuids in candidate.mappings.items()
        if GUEST_CELL_SUFFIX.fullmatch(suffix) and uuids
    }


def _is_apart(candidate: Candidate, host: HostState) -> bool:
    """Whether each node is on a cell of its own, with its pages below it."""
    cells = _cells(candidate)
    return len(set(cells.values())) == len(cells) and all(
        cell in host.ancestry(provider)
        for suffix, cell in cells.items()
        for provider in candidate.mappings.get(suffix.replace("_NUMA", "_PAGES"), ())
    )


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
        for host in hosts:
            near = tuple(c for c in host.candidates if self._is_near(c, host, spec))
            if near or not host.candidates:
                yield host._replace(candidates=near)

    def _is_near(self, candidate: Candidate, host: HostState, spec: RequestSpec) -> bool:
        classes = {
            suffix: [name for uuid in uuids for name in candidate.allocations.get(uuid, ())]
            for suffix, uuids in candidate.mappings.items()
            if not GUEST_CELL_SUFFIX.fullmatch(suffix)
        }
        policy_of = policies(spec, self.options.pci_aliases, classes)
        return is_near(candidate, host.providers, policy_of)
