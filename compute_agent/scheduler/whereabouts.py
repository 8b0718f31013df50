"""Where an instance is, by what it holds: the root of its host need not give it anything."""

from __future__ import annotations

from compute_agent.scheduler.errors import MoveRefused
from compute_agent.scheduler.placement_port import Holding, Placement


def root_of(placement: Placement, instance: str, held: Holding) -> str:
    """Return the root provider of the host that an instance is on.

    :raises MoveRefused: it is on no host, or on several.
    """
    roots = placement.provider_roots(tuple(held.allocations))
    found = set(roots.values())
    if len(found) > 1:
        sharing = placement.sharing(tuple(roots))
        found = {root for uuid, root in roots.items() if uuid not in sharing}
    if len(found) != 1:
        raise MoveRefused(
            f"What is asked for {instance} was refused: it holds allocations on {len(found)} hosts "
            f"({', '.join(sorted(found)) or 'shared providers only'}), expected one. Take away "
            "what is left over, such as that of a host it was evacuated from."
        )
    return found.pop()
