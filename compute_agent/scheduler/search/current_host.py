"""Hosts of instances, by what they hold: the root of a host need not give them anything."""

from __future__ import annotations

from compute_agent.scheduler.errors import MoveRefused
from compute_agent.scheduler.placement import Holding, Placement


def root_of(placement: Placement, instance: str, holding: Holding) -> str:
    """Return the root provider of the host that an instance is on.

    :raises MoveRefused: it is on no host, or on several.
    """
    roots = placement.provider_roots(tuple(holding.allocations))
    host_roots = set(roots.values())
    if len(host_roots) > 1:
        sharing = placement.sharing(tuple(roots))
        host_roots = {root for uuid, root in roots.items() if uuid not in sharing}
    if len(host_roots) != 1:
        raise MoveRefused(
            f"The request for {instance} was refused: it holds allocations on {len(host_roots)} "
            f"hosts ({', '.join(sorted(host_roots)) or 'shared providers only'}), expected one. "
            "Remove what is left over, such as that on a host it was evacuated from."
        )
    return host_roots.pop()
