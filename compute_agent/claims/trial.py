"""Trial of a request on this host: what it would get now, without anything being given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from compute_agent.claims.guest_needs import Allocation, guest_of, wishes_of
from compute_agent.claims.host_view import CellPolicy, NodeSituation, host_of
from compute_agent.claims.planning import occupied
from compute_agent.fitting.host import Host
from compute_agent.fitting.plan import Plan, Refusal
from compute_agent.fitting.planner import plan

NOBODY = "the request"


def try_out(
    situation: NodeSituation, spec: Mapping[str, Any], policy: CellPolicy
) -> tuple[Host, Plan | Refusal]:
    """Return what is free of a node, and the plan of what a request would get of it.

    :raises InvalidInput: the flavor cannot be read.
    """
    host = host_of(situation, occupied(situation, "", moving=False))
    sizes = {size for cell in situation.cells for size in cell.pages_mib}
    sums, wishes = wishes_of(NOBODY, spec, policy.aliases)
    allocation = Allocation(
        sums.get("VCPU", 0), sums.get("PCPU", 0), sums.get("MEMORY_MB", 0), {}, ()
    )
    guest = guest_of(NOBODY, spec, allocation, sizes, policy.aliases)
    names = {device.id: situation.tree.data(device.id).name for device in host.devices}
    answer = plan(host, replace(guest, wishes=tuple(wishes)), policy.options)
    if isinstance(answer, Plan):
        given = tuple(unit._replace(device=names[unit.device]) for unit in answer.given)
        answer = replace(answer, given=given)
    devices = tuple(replace(device, id=names[device.id]) for device in host.devices)
    return replace(host, devices=devices), answer
