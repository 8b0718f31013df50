"""Contract of a weigher, and the weighers that come with the scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final

from compute_agent.programs.decoding import LARGEST
from compute_agent.provider_tree.trait_names import HW_NUMA_ROOT
from compute_agent.request.guest_numa import is_device, is_special
from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.host_state import Hosts, HostState
from compute_agent.scheduler.placement.candidates import Candidate, links_of

_COMPARED: Final = 8
"""Candidates of a host of which the one that breaks the least counts."""


class HostWeigher:
    """Base of all weighers: `option` names its multiplier, `weigh` gives a host's raw weight.

    `lowest` is the raw weight that is scaled to 0; `None`: the least that a host has.
    """

    option = ""
    default_multiplier = 1.0
    lowest: float | None = None

    def concerns(self, spec: RequestSpec) -> bool:  # noqa: ARG002 - for others
        """Return whether hosts can differ for a request; where they cannot, none is weighed."""
        return True

    def weigh(self, host: HostState, spec: RequestSpec) -> float:
        """Return the raw weight; it is scaled to 0..1 over all hosts afterwards."""
        raise TypeError(
            f"{type(self).__name__} does not define weigh: cannot weigh {host.name} for project "
            f"{spec.project_id}"
        )

    def weigh_all(self, hosts: Hosts, spec: RequestSpec) -> Sequence[float]:
        """Return the raw weight of each host."""
        return [self.weigh(host, spec) for host in hosts]


class _FreeResource(HostWeigher):
    """What is free of some classes on the providers that the claim takes them from.

    On a host with NUMA cells that is the room on the cell, and not a sum over cells that no single
    guest could use. Where the claim takes none, the whole tree counts.
    """

    classes: frozenset[str] = frozenset()
    lowest = 0.0

    def weigh_all(self, hosts: Hosts, _spec: RequestSpec) -> Sequence[float]:
        """Return what is free on each host."""
        return hosts.free(self.classes)


class RAMWeigher(_FreeResource):
    """Free memory."""

    option = "ram"
    classes = frozenset(("MEMORY_MB",))


class CPUWeigher(_FreeResource):
    """Free CPUs, shared and pinned."""

    option = "cpu"
    classes = frozenset(("VCPU", "PCPU"))


class DiskWeigher(_FreeResource):
    """Free disk."""

    option = "disk"
    classes = frozenset(("DISK_GB",))


class IoOpsWeigher(HostWeigher):
    """Builds, resizes and migrations under way."""

    option = "io_ops"
    default_multiplier = -1.0
    lowest = 0.0

    def weigh_all(self, hosts: Hosts, _spec: RequestSpec) -> Sequence[float]:
        """Return their number on each host."""
        return [announced.io_ops for announced in hosts.announcements]


class PCIWeigher(HostWeigher):
    """Devices: who asks for some goes where most are free, who asks for none where none are."""

    option = "pci"

    def weigh_all(self, hosts: Hosts, spec: RequestSpec) -> Sequence[float]:
        """Weigh hosts only where there are devices."""
        return super().weigh_all(hosts, spec) if hosts.has_special_classes else [0.0] * len(hosts)

    def weigh(self, host: HostState, _spec: RequestSpec) -> float:
        """Return the devices that stay free, negative for a request that needs none."""
        if not host.candidates:
            return 0.0
        wanted_classes = set[str]().union(*host.candidates[0].allocations.values())
        wanted_devices = set(filter(is_special, wanted_classes))
        if wanted_devices:
            return float(sum(map(host.free, wanted_devices)))
        return -float(
            sum(
                provider.free(name)
                for provider in host.tree
                for name in filter(is_special, provider.counts)
            )
        )


class ServerGroupSoftAffinityWeigher(HostWeigher):
    """Policy `soft-affinity`: hosts with many members of the group."""

    option = "soft_affinity"
    policy = "soft-affinity"
    sign = 1.0

    def concerns(self, spec: RequestSpec) -> bool:
        """Return whether the request is for a group of this policy."""
        return spec.group_of(self.policy) is not None

    def weigh(self, host: HostState, spec: RequestSpec) -> float:
        """Return the number of members here, negative where few are wanted."""
        group = spec.instance_group
        return 0.0 if group is None else self.sign * host.member_count(group, spec)


class ServerGroupSoftAntiAffinityWeigher(ServerGroupSoftAffinityWeigher):
    """Policy `soft-anti-affinity`: hosts with few members of the group."""

    option = "soft_anti_affinity"
    policy = "soft-anti-affinity"
    sign = -1.0


class BuildFailureWeigher(HostWeigher):
    """Hosts where builds failed lately come last."""

    option = "build_failure"
    default_multiplier = 1000000.0

    def weigh_all(self, hosts: Hosts, _spec: RequestSpec) -> Sequence[float]:
        """Return the negative number of failures on each host."""
        return [-announced.build_failures for announced in hosts.announcements]


class CrossCellMoveWeigher(HostWeigher):
    """Hosts of the cell that a moving instance is in already."""

    option = "cross_cell_move"
    default_multiplier = 1000000.0

    def concerns(self, spec: RequestSpec) -> bool:
        """Return whether an instance moves that is in a cell."""
        return bool(spec.destination.cell)

    def weigh(self, host: HostState, spec: RequestSpec) -> float:
        """Return -1 for a move to another cell, else 0."""
        wanted_cell = spec.destination.cell
        return -1.0 if wanted_cell and host.cell != wanted_cell else 0.0


class NumInstancesWeigher(HostWeigher):
    """Number of instances."""

    option = "num_instances"
    default_multiplier = 0.0

    def weigh(self, host: HostState, _spec: RequestSpec) -> float:
        """Return it."""
        instance_count = host.announcement.instances if host.announcement else None
        return float((instance_count or 0) + host.claimed_here)


class HypervisorVersionWeigher(HostWeigher):
    """Newer hypervisors first."""

    option = "hypervisor_version"

    def weigh_all(self, hosts: Hosts, _spec: RequestSpec) -> Sequence[float]:
        """Return the version that each announces, 0 where none does."""
        versions = [
            announced.attributes.get("hypervisor_version") for announced in hosts.announcements
        ]
        # what cannot be one, such as NaN, would leave no host its weight
        return [
            said if isinstance(said, int | float) and abs(said) <= LARGEST else 0
            for said in versions
        ]


class LeavesWholeWeigher(HostWeigher):
    """Hosts first where a guest breaks no whole core or group of links and spares device cells.

    Where a plan was made for the filters, as on flat hosts for what they announce, it counts.
    """

    option = "leaves_whole"
    default_multiplier = 0.25

    def weigh_all(self, hosts: Hosts, spec: RequestSpec) -> Sequence[float]:
        """Weigh hosts only where there is anything to break."""
        if not (hosts.is_planned or (hosts.has_special_classes and any(map(_has_parts, hosts)))):
            return [0.0] * len(hosts)
        return super().weigh_all(hosts, spec)

    def weigh(self, host: HostState, _spec: RequestSpec) -> float:
        """Return the negative number of what is broken."""
        if host.cost is not None:
            return -float(host.cost.broken_links + host.cost.device_cells + host.cost.broken_cores)
        kinds, groups = _kinds_of_cells(host), _whole_groups(host)
        if not (kinds or groups):
            return 0.0
        return -float(
            min(
                (
                    _broken(candidate, kinds, groups)
                    for candidate in islice(host.candidates, _COMPARED)
                ),
                default=0,
            )
        )


def _has_parts(host: HostState) -> bool:
    """Whether a host has cells, or groups of linked devices."""
    every = [provider.traits for provider in host.providers.values()]
    return any(HW_NUMA_ROOT in traits or links_of(traits) for traits in every)


def _kinds_of_cells(host: HostState) -> dict[str, set[str]]:
    """Return the classes of free devices below each cell."""
    kinds: dict[str, set[str]] = {}
    for provider in host.tree:
        free = {name for name in provider.counts if is_device(name) and provider.free(name)}
        if free:
            for uuid in host.ancestry(provider.uuid):
                if HW_NUMA_ROOT in host.providers[uuid].traits:
                    kinds.setdefault(uuid, set()).update(free)
    return kinds


def _whole_groups(host: HostState) -> list[frozenset[str]]:
    """Return the groups of linked devices of which nobody has anything."""
    members: dict[str, list[str]] = {}
    broken: set[str] = set()
    for provider in host.tree:
        for trait in links_of(provider.traits):
            members.setdefault(trait, []).append(provider.uuid)
            if any(provider.used(name) for name in filter(is_device, provider.counts)):
                broken.add(trait)
    return [frozenset(uuids) for trait, uuids in members.items() if trait not in broken]


def _broken(
    candidate: Candidate,
    kinds: dict[str, set[str]],
    groups: list[frozenset[str]],
) -> int:
    wanted = {name for amounts in candidate.allocations.values() for name in amounts}
    taken = set(candidate.allocations)
    cells = sum(
        len(kinds[uuid] - wanted)
        for uuid, amounts in candidate.allocations.items()
        if uuid in kinds and not all(map(is_device, amounts))
    )
    return cells + sum(bool(taken & group) and not group <= taken for group in groups)
