"""Devices that a PCI alias names: near the guest, or free at all where placement does not count."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from compute_agent.provider_tree.trait_names import HW_NUMA_ROOT
from compute_agent.request import flavor
from compute_agent.request.candidate_request import GUEST_CELL_SUFFIX
from compute_agent.request.flavor import PciAlias
from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.candidates import Candidate
from compute_agent.scheduler.filters.host_filter import HostFilter
from compute_agent.scheduler.host_state import HostState

_POOLS = "pci_pools"
_ANYWHERE = ("preferred", "socket")


class PciPassthroughFilter(HostFilter):
    """Drop the candidates whose devices an alias does not allow, and hosts with none left.

    With ``pci_in_placement`` the devices are part of the candidates, and for a guest with NUMA
    nodes the alias's ``numa_policy`` decides where they may be: ``required``: below a cell of the
    guest; ``legacy``: there or below no cell; ``preferred`` and ``socket``: anywhere. Without it
    the agent must announce ``pci_pools``, a list of ``{"resource_class", "traits", "count"}``, with
    enough free.
    """

    def filter_all(self, hosts: Sequence[HostState], spec: RequestSpec) -> Iterator[HostState]:
        """Yield the hosts with the candidates that the aliases allow."""
        named = flavor.device_aliases(spec)
        aliases = {suffix: self.options.pci_aliases[name] for suffix, name in named.items()}
        if not aliases:
            yield from hosts
        elif self.options.pci_in_placement:
            yield from _with_near_devices(hosts, aliases if _has_numa(spec) else {})
        else:
            for host in hosts:
                devices = list(aliases.values()) * (1 + host.claimed_here)
                if pools_suffice(_pools(host), devices):
                    yield host


def near(candidate: Candidate, host: HostState, aliases: Mapping[str, PciAlias]) -> bool:
    """Whether each device is as near to the guest's cells as its alias wants.

    :param aliases: alias by the suffix of the device's group.
    """
    cells = {
        uuid
        for suffix, uuids in candidate.mappings.items()
        if GUEST_CELL_SUFFIX.fullmatch(suffix)
        for uuid in uuids
    }
    if not cells:
        # a flat host: only its agent knows which device is near
        return True
    for suffix, alias in aliases.items():
        if alias.numa_policy in _ANYWHERE:
            continue
        for device in candidate.mappings.get(suffix, ()):
            line = host.ancestry(device)
            of_a_cell = any(HW_NUMA_ROOT in host.providers[provider].traits for provider in line)
            if (of_a_cell or alias.numa_policy == "required") and cells.isdisjoint(line):
                return False
    return True


def pools_suffice(pools: Sequence[Mapping[str, Any]], aliases: Sequence[PciAlias]) -> bool:
    """Whether each of the devices wanted can be had from a pool, every one only once."""
    if not aliases:
        return True
    for index, pool in enumerate(pools):
        if int(pool.get("count", 0)) > 0 and _serves(pool, aliases[0]):
            taken = {**pool, "count": int(pool["count"]) - 1}
            if pools_suffice([*pools[:index], taken, *pools[index + 1 :]], aliases[1:]):
                return True
    return False


def _with_near_devices(
    hosts: Sequence[HostState], aliases: Mapping[str, PciAlias]
) -> Iterator[HostState]:
    for host in hosts:
        left = tuple(candidate for candidate in host.candidates if near(candidate, host, aliases))
        if left or not host.candidates:
            yield replace(host, candidates=left)


def _has_numa(spec: RequestSpec) -> bool:
    """Whether the guest has NUMA nodes: asked for, or since its CPUs or pages are its own."""
    settings = ("hw:numa_nodes", "hw:cpu_policy", "hw:mem_page_size")
    values = [spec.setting(name) for name in settings]
    return bool(spec.guest_cells) or any(value not in (None, "shared", "small") for value in values)


def _serves(pool: Mapping[str, Any], alias: PciAlias) -> bool:
    return pool.get("resource_class") == alias.resource_class and alias.traits <= set(
        pool.get("traits", ())
    )


def _pools(host: HostState) -> Sequence[Mapping[str, Any]]:
    announced = host.announcement.attributes.get(_POOLS) if host.announcement else None
    return list(announced or ())
