"""Hosts that a request names, and hosts of instances.

A name is that of the root provider, or of a service with several nodes.

A rebuild names the host where the instance is: nothing is claimed, the new image is checked.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from compute_agent.request import extra_specs
from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.errors import MoveRefused, NoValidHost
from compute_agent.scheduler.fleet.announcements import Announcements
from compute_agent.scheduler.host_state import HostState
from compute_agent.scheduler.outcomes.causes import Causes
from compute_agent.scheduler.placement.client import PlacementClient
from compute_agent.scheduler.placement.holdings import Holding

_GATHERING = ("affinity", "soft-affinity")


@dataclass(frozen=True, slots=True)
class Target:
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
