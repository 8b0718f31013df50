"""Devices that a PCI alias names: near the guest, or free at all where placement does not count."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from compute_agent.provider_tree.trait_names import DEVICE_TYPE_PREFIX
from compute_agent.request import flavor
from compute_agent.request.candidate_request import GUEST_CELL_SUFFIX
from compute_agent.request.flavor import PciAlias
from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler import device_affinity
from compute_agent.scheduler.candidates import Candidate
from compute_agent.scheduler.filters.host_filter import HostFilter
from compute_agent.scheduler.host_state import HostState

_POOLS = "pci_pools"


class PciPassthroughFilter(HostFilter):
    """Drop the candidates whose devices an alias does not allow, and hosts with none left.

    With ``pci_in_placement`` the devices are part of the candidates, and for a guest with NUMA
    nodes `device_affinity` says where they, and accelerators, may be. Without it
    the agent must announce ``pci_pools``, a list of ``{"resource_class", "traits", "count"}``, with
    enough free.
    """

    def filter_all(self, hosts: Sequence[HostState], spec: RequestSpec) -> Iterator[HostState]:
        """Yield the hosts with the candidates that the aliases allow."""
        if self.options.pci_in_placement:
            near_hosts = _with_near_devices(hosts, spec, self.options.pci_aliases)
            yield from near_hosts if device_affinity.has_nodes(spec) else hosts
            return
        alias_requests = flavor.device_aliases(spec).values()
        devices = [flavor.alias_named(name, self.options.pci_aliases) for name in alias_requests]
        for host in hosts:
            if not devices or pools_suffice(_pools(host), devices * (1 + host.claimed_here)):
                yield host


def pools_suffice(pools: Sequence[Mapping[str, Any]], aliases: Sequence[PciAlias]) -> bool:
    """Whether each of the devices wanted can be had from a pool, every one only once."""
    users: list[list[PciAlias]] = [[] for _ in pools]

    def place(alias: PciAlias, seen_indexes: set[int]) -> bool:
        for index, pool in enumerate(pools):
            if index in seen_indexes or not _serves(pool, alias):
                continue
            seen_indexes.add(index)
            if len(users[index]) < int(pool.get("count", 0)):
                users[index].append(alias)
                return True
            # a device bound before may do with another pool
            for position, other in enumerate(users[index]):
                if place(other, seen_indexes):
                    users[index][position] = alias
                    return True
        return False

    return all(place(alias, set()) for alias in aliases)


def _with_near_devices(
    hosts: Sequence[HostState], spec: RequestSpec, aliases: Mapping[str, PciAlias]
) -> Iterator[HostState]:
    for host in hosts:
        near_candidates = tuple(
            candidate for candidate in host.candidates if _is_near(candidate, host, spec, aliases)
        )
        if near_candidates or not host.candidates:
            yield replace(host, candidates=near_candidates)


def _is_near(
    candidate: Candidate, host: HostState, spec: RequestSpec, aliases: Mapping[str, PciAlias]
) -> bool:
    classes = {
        suffix: [name for uuid in uuids for name in candidate.allocations.get(uuid, ())]
        for suffix, uuids in candidate.mappings.items()
        if not GUEST_CELL_SUFFIX.fullmatch(suffix)
    }
    policy_of = device_affinity.policies(spec, aliases, classes)
    return device_affinity.near(candidate, host.providers, policy_of)


def _serves(pool: Mapping[str, Any], alias: PciAlias) -> bool:
    traits = set(pool.get("traits", ()))
    others = {t for t in traits if t.startswith(DEVICE_TYPE_PREFIX)} - {
        f"{DEVICE_TYPE_PREFIX}{kind}" for kind in alias.device_types
    }
    has_class = pool.get("resource_class") == alias.resource_class
    return (
        has_class and alias.traits <= traits and not alias.forbidden_traits & traits and not others
    )


def _pools(host: HostState) -> Sequence[Mapping[str, Any]]:
    pools = host.announcement.attributes.get(_POOLS) if host.announcement else None
    return list(pools or ())
