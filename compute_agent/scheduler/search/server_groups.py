"""Places of the instances that a request names: members of its server group, and of hints."""

from __future__ import annotations

from collections.abc import Mapping

from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.filters.server_group import anti_affinity
from compute_agent.scheduler.placement import Placement


def roots_of_named(placement: Placement, spec: RequestSpec) -> Mapping[str, frozenset[str]]:
    """Return where the instances live that hints or the server group name, by instance."""
    named = {*spec.hint("same_host"), *spec.hint("different_host")}
    if spec.instance_group is not None:
        named |= spec.instance_group.members
    living = {}
    for instance in sorted(named):
        held_amounts = placement.holding(instance).allocations
        roots = placement.provider_roots(tuple(held_amounts)) if held_amounts else {}
        living[instance] = frozenset(roots.values())
    return living


def crowding(placement: Placement, spec: RequestSpec, instance: str, root: str) -> frozenset[str]:
    """Return the other members of an anti-affinity group on a host, when they are too many.

    To be asked after the claim of `instance` there: a member that was claimed at the same time was
    not there when filters ran.
    """
    members, most = anti_affinity(spec)
    others = members - {instance}
    if not others:
        return frozenset()
    there = placement.consumers_on(root, others)
    return there if len(there) >= most else frozenset()
