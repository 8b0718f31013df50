"""Hosts that a request names, hosts of instances, and those with members of its server group.

A name is that of the root provider, or of a service with several nodes.

A rebuild names the host where the instance is: nothing is claimed, the new image is checked.

No request to placement lists the hosts of many consumers, and a group may have hundreds of members.
So members are not asked for, one after the other, where they are. A host is asked who is there,
once its turn to be claimed comes; and to gather a group one member is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from compute_agent.request import extra_specs
from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.errors import MoveRefused, NoValidHost
from compute_agent.scheduler.filters.affinity import (
    ServerGroupAntiAffinityFilter,
    anti_affinity,
)
from compute_agent.scheduler.fleet.announcements import Announcements
from compute_agent.scheduler.host_state import NO_CELL, Hosts, HostState
from compute_agent.scheduler.outcomes import SHOWN_HOSTS, Causes, FilterCause, RejectedHost
from compute_agent.scheduler.placement.client import PlacementClient
from compute_agent.scheduler.placement.holdings import Holding

_GATHERING = ("affinity", "soft-affinity")


class Target(Struct, frozen=True):
    """Where a request must go.

    :param names: of nodes or services; empty for anywhere.
    :param root: the one root provider that they stand for; None for several, or anywhere.
    """

    names: frozenset[str] = frozenset()
    root: str | None = None

    def admits(self, host: HostState) -> bool:
        """Whether a host is one of those that are named, where any are."""
        return not self.names.isdisjoint(host.known_as)


def target_of(
    spec: RequestSpec, placement: PlacementClient, announcements: Announcements | None
) -> Target:
    """Return where `spec` must go.

    :raises NoValidHost: it names a host that there is not.
    """
    nodes = {spec.destination.node} - {""} or spec.force_nodes
    services = {spec.destination.host} - {""} or spec.force_hosts
    names = frozenset(nodes or services)
    if not names:
        return Target()
    roots = {root for name in names for root in _roots(name, placement, announcements, bool(nodes))}
    return Target(names, roots.pop() if len(roots) == 1 else None)


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


def sees_all_hosts(spec: RequestSpec, target: Target) -> bool:
    """Whether a limit could hide the very hosts that the request is about."""
    group = spec.instance_group
    gathers = group is not None and group.policy in _GATHERING and bool(group.hosts)
    return gathers or bool(spec.hint("same_host")) or (bool(target.names) and target.root is None)


def _roots(
    name: str, placement: PlacementClient, announcements: Announcements | None, is_node: bool
) -> Collection[str]:
    of_service = announcements.roots_of(name) if announcements and not is_node else ()
    if len(of_service) > 1:
        return of_service
    root = placement.root_named(name)
    if root is not None:
        return (root,)
    if of_service:
        return of_service
    reason = f"Placement knows no host {name}."
    raise NoValidHost(reason, Causes(notes=(reason,)))


HINT = "_nova_check_type"


def is_rebuild(spec: RequestSpec) -> bool:
    """Return whether the request is a rebuild, which leaves the instance where it is."""
    return "rebuild" in spec.hint(HINT)


def missing_traits(
    spec: RequestSpec, used_providers: Collection[str], traits: Mapping[str, frozenset[str]]
) -> frozenset[str]:
    """Return the traits that the image requires and that no provider in use has.

    :param used_providers: the providers that the instance holds something on, and its host's root.
    :param traits: of every provider of the tree.
    """
    there = frozenset().union(*(traits.get(uuid, frozenset()) for uuid in used_providers))
    return extra_specs.image_traits(spec.image.properties) - there


def root_of(placement: PlacementClient, instance: str, holding: Holding) -> str:
    """Return the root provider of the host that an instance is on, which need not give it anything.

    :raises MoveRefused: it is on no host, or on several.
    """
    found_roots = host_roots(placement, holding)
    if len(found_roots) != 1:
        raise MoveRefused(
            f"The request for {instance} was refused: it holds allocations on {len(found_roots)} "
            f"hosts ({', '.join(sorted(found_roots)) or 'shared providers only'}), expected one. "
            "Remove what is left over, such as that on a host it was evacuated from."
        )
    return next(iter(found_roots))


def host_roots(placement: PlacementClient, holding: Holding) -> frozenset[str]:
    """Return the root providers of the hosts of which something is held."""
    roots = placement.provider_roots(tuple(holding.allocations))
    if len(set(roots.values())) < 2:
        return frozenset(roots.values())
    sharing = placement.sharing(tuple(roots))
    return frozenset(root for uuid, root in roots.items() if uuid not in sharing)


LOOKED_AT: Final = 8
"""The best hosts, among which one with few members is looked for with soft-anti-affinity."""


class GroupMembers:
    """Members of a group that keeps apart, on the hosts that were looked at; each once.

    Where the caller names the hosts of the group, the filter and the weigher use these, and nothing
    is asked before the claim; but a host that may have several members is asked how many.

    :param is_enforced: whether a host must not have too many.
    """

    def __init__(self, placement: PlacementClient, spec: RequestSpec, *, is_enforced: bool) -> None:
        self._placement = placement
        self._members, self._most = anti_affinity(spec) if is_enforced else (frozenset(), 1)
        self._named_hosts = spec.instance_group.hosts if spec.instance_group else frozenset()
        soft = spec.group_of("soft-anti-affinity")
        self._soft = soft.members if soft and not soft.hosts else frozenset()
        self._there: dict[str, frozenset[str]] = {}
        self._rejected_hosts: dict[str, RejectedHost] = {}

    @property
    def are_kept_apart(self) -> bool:
        """Whether a host must not have too many."""
        return bool(self._members)

    @property
    def are_looked_for(self) -> bool:
        """Whether a host has to be looked at before it is claimed, as not all of theirs are named.

        A host that has a member is then not among those that are claimed: the claim that an
        instance has there already, of a repeated request, would be taken back.
        """
        return bool(self._members) and not (self._named_hosts and self._most == 1)

    def crowding(self, host: HostState, instance: str = "") -> frozenset[str]:
        """Return the other members that a host has, when there is no room for one more.

        :param instance: the one that is to go there; it may be a member that is there already.
        """
        if not self._members or (host.uuid not in self._there and not self._is_asked(host)):
            return frozenset()
        there = self._on(host, self._members) - {instance}
        if len(there) + host.claimed_here < self._most:
            return frozenset()
        reason = f"has {len(there)} of at most {self._most} members of the group"
        self._rejected_hosts[host.uuid] = RejectedHost(host.name, reason)
        return there

    def crowding_after_claim(self, host: HostState, instances: Collection[str]) -> frozenset[str]:
        """Return the other members on a host, when they are too many now that these are there.

        A member that was claimed at the same time was not there before.
        """
        others = self._members.difference(instances)
        if not others:
            return frozenset()
        giving = [provider.uuid for provider in host.tree if provider.counts]
        there = self._placement.consumers_on(host.uuid, giving, others)
        return there if len(there) + len(instances) > self._most else frozenset()

    def rivals(self, host: HostState, others: frozenset[str]) -> frozenset[str]:
        """Return those of the others that came after the host was looked at, who may give way."""
        return others - self._there.get(host.uuid, frozenset())

    def leave_to(self, host: HostState, others: frozenset[str]) -> None:
        """Count these members on a host from now on."""
        self._there[host.uuid] = self._there.get(host.uuid, frozenset()) | others

    def cause(self, hosts: Sequence[HostState]) -> FilterCause | None:
        """Return what was rejected of these hosts, in the name of the filter; None for nothing."""
        rejected_hosts = [
            self._rejected_hosts[host.uuid] for host in hosts if host.uuid in self._rejected_hosts
        ]
        if not rejected_hosts:
            return None
        remaining_hosts = [host.name for host in hosts if host.uuid not in self._rejected_hosts]
        return FilterCause(
            ServerGroupAntiAffinityFilter.__name__,
            len(hosts),
            len(remaining_hosts),
            tuple(remaining_hosts[:SHOWN_HOSTS]),
            tuple(rejected_hosts[:SHOWN_HOSTS]),
        )

    def looked_at(self, ordered_hosts: Iterator[HostState]) -> list[HostState]:
        """Take the best hosts and return them with the members they have, where that matters."""
        if not self._soft:
            return []
        return [
            host._replace(instances=host.instances | self._on(host, self._soft))
            for host in islice(ordered_hosts, LOOKED_AT)
        ]

    def _is_asked(self, host: HostState) -> bool:
        return self.are_looked_for and (not self._named_hosts or host.name in self._named_hosts)

    def _on(self, host: HostState, members: Collection[str]) -> frozenset[str]:
        if host.uuid not in self._there:
            used_providers = [
                provider.uuid for provider in host.tree if any(map(provider.used, provider.counts))
            ]
            self._there[host.uuid] = (
                self._placement.consumers_on(host.uuid, used_providers, members)
                if used_providers
                else frozenset()
            )
        return self._there[host.uuid]


def with_hosts(
    placement: PlacementClient, spec: RequestSpec, instances: Collection[str] = ()
) -> RequestSpec:
    """Return a specification whose group names a host where it shall gather, if it is anywhere.

    The members share a host, so one that holds something is enough.

    :param instances: those that the request is for, which do not decide where they go.
    """
    group = spec.group_of("affinity", "soft-affinity")
    if group is None or group.hosts:
        return spec
    for member in sorted(group.members - set(instances)):
        roots = host_roots(placement, placement.holding(member))
        if roots:
            names = frozenset(placement.provider_names(roots).values())
            return replace(spec, instance_group=replace(group, hosts=names))
    return spec


def with_group_host(spec: RequestSpec, host: str) -> RequestSpec:
    """Return a specification whose server group has a member on `host`."""
    group = spec.instance_group
    if group is None:
        return spec
    return replace(spec, instance_group=replace(group, hosts=group.hosts | {host}))


def roots_of_named(placement: PlacementClient, spec: RequestSpec) -> Mapping[str, frozenset[str]]:
    """Return where the instances live that hints name, by instance."""
    named_instances = {*spec.hint("same_host"), *spec.hint("different_host")}
    return {
        instance: host_roots(placement, placement.holding(instance))
        for instance in sorted(named_instances)
    }
