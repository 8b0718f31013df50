"""Guests with NUMA nodes of their own: where their CPUs, pages and networks may be."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from compute_agent.request import flavor_settings
from compute_agent.request.candidate_request import GUEST_CELL_SUFFIX
from compute_agent.request.guest_numa import GuestNode, GuestNuma, guest_numa
from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.candidates import Candidate
from compute_agent.scheduler.filters.host_filter import HostFilter
from compute_agent.scheduler.host_state import HostState

_CELLS = "cells"


class NUMATopologyFilter(HostFilter):
    """Drop the candidates that do not fit the guest's NUMA nodes, and hosts with none left.

    On a host with providers for its cells every node of the guest must be on a cell of its own,
    with its huge pages below that cell. Of another host the agent may announce ``cells``, a list of
    ``{"id", "vcpu", "pcpu", "memory_mb", "physnets", "tunneled"}`` with what is free; the guest's
    nodes must fit on different ones. A host that announces none is left to its agent.
    """

    def filter_all(self, hosts: Sequence[HostState], spec: RequestSpec) -> Iterator[HostState]:
        """Yield the hosts with the candidates that fit."""
        numa = _numa_of(spec)
        for host in hosts:
            if not host.candidates:
                if self._flat_fits(host, numa, spec):
                    yield host
                continue
            fitting_candidates = tuple(
                candidate
                for candidate in host.candidates
                if self._fits(candidate, host, numa, spec)
            )
            if fitting_candidates:
                yield replace(host, candidates=fitting_candidates)

    def _fits(
        self, candidate: Candidate, host: HostState, numa: GuestNuma, spec: RequestSpec
    ) -> bool:
        cells = {
            suffix: uuids[0]
            for suffix, uuids in candidate.mappings.items()
            if GUEST_CELL_SUFFIX.fullmatch(suffix) and uuids
        }
        if not cells:
            return self._flat_fits(host, numa, spec)
        return len(set(cells.values())) == len(cells) and pages_below(candidate, host, cells)

    def _flat_fits(self, host: HostState, numa: GuestNuma, spec: RequestSpec) -> bool:
        announced_cells = host.announcement.attributes.get(_CELLS) if host.announcement else None
        if not announced_cells:
            return True
        networks = [network.physnet for network in spec.requested_networks if network.physnet]
        needs_tunnel = any(network.is_tunneled for network in spec.requested_networks)
        if not (numa.names_nodes or networks or needs_tunnel):
            return True
        return any(
            networks_reached(assignment, announced_cells, networks, needs_tunnel=needs_tunnel)
            for assignment in assignments(numa.nodes, announced_cells)
        )


def pages_below(candidate: Candidate, host: HostState, cells: Mapping[str, str]) -> bool:
    """Whether the pages of each guest node are on its cell or below it."""
    for suffix, cell in cells.items():
        for provider in candidate.mappings.get(suffix.replace("_NUMA", "_PAGES"), ()):
            if cell not in host.ancestry(provider):
                return False
    return True


def assignments(
    nodes: Sequence[GuestNode], cells: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[Mapping[str, Any], ...]]:
    """Yield the ways to put each guest node on a host cell of its own that has room for it."""
    if not nodes:
        yield ()
        return
    for index, cell in enumerate(cells):
        if _has_room(cell, nodes[0]):
            for rest in assignments(nodes[1:], [*cells[:index], *cells[index + 1 :]]):
                yield (cell, *rest)


def networks_reached(
    chosen_cells: Sequence[Mapping[str, Any]],
    cells: Sequence[Mapping[str, Any]],
    physnets: Collection[str],
    *,
    needs_tunnel: bool,
) -> bool:
    """Whether the guest is on a cell near each of its networks that has a cell at all."""

    def near(has: str, value: str | None) -> bool:
        def of(cell: Mapping[str, Any]) -> bool:
            return value in cell.get(has, ()) if value is not None else bool(cell.get(has))

        return not any(map(of, cells)) or any(map(of, chosen_cells))

    return all(near("physnets", name) for name in physnets) and (
        not needs_tunnel or near("tunneled", None)
    )


def _has_room(cell: Mapping[str, Any], node: GuestNode) -> bool:
    needs = {"vcpu": node.vcpu, "pcpu": node.pcpu, "memory_mb": node.memory_mb}
    return all(int(cell.get(name, 0)) >= amount for name, amount in needs.items() if amount)


def _numa_of(spec: RequestSpec) -> GuestNuma:
    vcpu, pcpu = flavor_settings.pinned_cpus(spec, spec.flavor.vcpus)
    return guest_numa(spec, vcpu, pcpu, spec.flavor.memory_mb)
