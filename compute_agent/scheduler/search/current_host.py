"""Hosts of instances, by what they hold: the root of a host need not give them anything."""

from __future__ import annotations

from compute_agent.scheduler.errors import MoveRefused
from compute_agent.scheduler.placement.client import PlacementClient
from compute_agent.scheduler.placement.holdings import Holding


def root_of(placement: PlacementClient, instance: str, holding: Holding) -> str:
    """Return the root provider of the host that an instance is on.

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
