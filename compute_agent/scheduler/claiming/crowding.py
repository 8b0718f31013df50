"""Hosts with too many members of a server group after a claim, and the claim that stays there."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from compute_agent.scheduler.host_state import HostState
from compute_agent.scheduler.search.server_groups import GroupMembers

PAUSES: Final = (0.02, 0.04, 0.08, 0.16)
"""Seconds before each further look: longer than it takes another scheduler to give way."""


@dataclass(frozen=True, slots=True)
class CrowdedHost:
    """A host with too many members of the group: these instances, and others."""

    host: HostState
    instances: frozenset[str]
    others: frozenset[str]


def crowded_hosts(
    members: GroupMembers,
    claimed_hosts: Mapping[str, HostState],
    wait: Callable[[float], object] = time.sleep,
) -> list[CrowdedHost]:
    """Return the hosts that are crowded now that the instances of a request have them.

    Who claims later sees the earlier claim, so one of two requests always gives way. Where each
    sees the other, both would. So the one with the smallest uuid on these hosts stays, and looks
    again until the others have given way, or a smaller one comes; one that does not give way has
    claimed before, and stays itself.

    :param claimed_hosts: by instance; their claims are carried out.
    """
    if not _looked_at(members, claimed_hosts):
        return []
    # One that claims between the looks at two hosts is not seen on the first of them.
    crowded_places = _looked_at(members, claimed_hosts)
    for pause in PAUSES:
        if not crowded_places or _comes_later(members, crowded_places):
            break
        wait(pause)
        crowded_places = _looked_at(members, claimed_hosts)
    return crowded_places


def _looked_at(members: GroupMembers, claimed_hosts: Mapping[str, HostState]) -> list[CrowdedHost]:
    crowded_places = []
    for uuid, host in {host.uuid: host for host in claimed_hosts.values()}.items():
        here = frozenset(
            i for i, claimed_host in claimed_hosts.items() if claimed_host.uuid == uuid
        )
        others = members.crowding_after_claim(host, here)
        if others:
            crowded_places.append(CrowdedHost(host, here, others))
    return crowded_places


def _comes_later(members: GroupMembers, crowded_places: Sequence[CrowdedHost]) -> bool:
    first = min(instance for place in crowded_places for instance in place.instances)
    rivals = (members.rivals(place.host, place.others) for place in crowded_places)
    return any(rival < first for rival in frozenset[str]().union(*rivals))
