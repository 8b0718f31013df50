"""The plan of one claim: the units and cells that an instance gets of what was allocated. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from compute_agent import errors
from compute_agent.claims.checks import ClaimRequest
from compute_agent.claims.guest_needs import Allocation, guest_of, wishes_of
from compute_agent.claims.host_view import (
    CELL_CLASSES,
    CellPolicy,
    NodeSituation,
    Occupancy,
    given_cells,
    host_of,
    occupied,
)
from compute_agent.claims.units import PCPU
from compute_agent.fitting.guest import Guest, Node
from compute_agent.fitting.host import Host
from compute_agent.fitting.plan import Plan, Refusal
from compute_agent.fitting.planner import plan
from compute_agent.placement.allocations.amounts import Amounts
from compute_agent.state.claim import AssignedUnit, Claim, ClaimedCell

NOBODY = "the request"
_GUEST_NODE = re.compile(r"_NUMA(\d+)")

Gift = tuple[tuple[AssignedUnit, ...], tuple[ClaimedCell, ...]]


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
        given = tuple(replace(unit, device=names[unit.device]) for unit in answer.given)
        answer = replace(answer, given=given)
    devices = tuple(replace(device, id=names[device.id]) for device in host.devices)
    return replace(host, devices=devices), answer


def plan_claim(
    request: ClaimRequest,
    amounts: Amounts,
    situation: NodeSituation,
    policy: CellPolicy,
    renewed_claim: Claim | None,
    *,
    moving: bool,
) -> Gift:
    """Return the units and the NUMA cells of a claim.

    :param renewed_claim: the claim of the same instance, which keeps what it has.
    :param moving: what the instance has already stays with the source of its move.
    :raises ComputeResourcesUnavailable: it cannot be given what was allocated.
    :raises InvalidInput: its flavor cannot be read.
    """
    taken = occupied(situation, request.instance, moving=moving)
    own = frozenset(renewed_claim.units if renewed_claim is not None else ())
    if renewed_claim is not None and own <= situation.units - taken.units:
        if renewed_claim.amounts == amounts:
            return renewed_claim.units, renewed_claim.cells
        if _of_cells(renewed_claim.amounts) == _of_cells(amounts):
            return _other_devices(request, amounts, situation, policy, renewed_claim, taken)
    host = host_of(situation, taken, own)
    named = {(unit.provider_uuid, unit.resource_class) for unit in situation.units}
    if situation.cells:
        named = {(provider, name) for provider, name in named if name != PCPU}
    cells, given = given_cells(situation, amounts, host) if situation.cell_of else ((), {})
    if situation.cell_of:
        host = replace(host, cells=cells)
    sizes = {size for cell in situation.cells for size in cell.pages_mib}
    allocation = Allocation.of(amounts, given, named)
    if not situation.cells:
        allocation = replace(allocation, vcpus=0, pinned=0, memory_mib=0)
        guest = guest_of(request.instance, {}, allocation, sizes)
    else:
        guest = guest_of(request.instance, request.spec, allocation, sizes, policy.aliases)
    if situation.cell_of and not given:
        guest = Guest((), wishes=guest.wishes, floats=True)
    guest = replace(guest, nodes=tuple(_on_fixed_cells(guest, request, situation)))
    return _gift(request, situation, guest, plan(host, guest, policy.options))


def _of_cells(amounts: Amounts) -> dict[str, dict[str, int]]:
    """Return the part of amounts that cells have."""
    parts = {
        provider: {name: n for name, n in classes.items() if name in CELL_CLASSES}
        for provider, classes in amounts.items()
    }
    return {provider: classes for provider, classes in parts.items() if classes}


def _other_devices(
    request: ClaimRequest,
    amounts: Amounts,
    situation: NodeSituation,
    policy: CellPolicy,
    claim: Claim,
    taken: Occupancy,
) -> Gift:
    """Return other devices for an instance that stays on its CPUs and cells."""
    host = host_of(situation, taken, claim.units)
    named = {
        (unit.provider_uuid, unit.resource_class)
        for unit in situation.units
        if unit.resource_class != PCPU
    }
    allocation = Allocation.of(amounts, {}, named)
    wishes = guest_of(request.instance, {}, allocation, ()).wishes
    nodes = tuple(Node(cell=cell) for cell in sorted({cell.cell for cell in claim.cells}))
    known_cells = {cell.id for cell in host.cells}
    if not nodes or any(node.cell not in known_cells for node in nodes):
        nodes = ()
    guest = Guest(nodes, floats=not nodes, wishes=wishes)
    units, _cells = _gift(request, situation, guest, plan(host, guest, policy.options))
    cpus = [unit for unit in claim.units if unit.resource_class == PCPU]
    return tuple(sorted((*cpus, *units))), claim.cells


def _on_fixed_cells(
    guest: Guest, request: ClaimRequest, situation: NodeSituation
) -> tuple[Node, ...]:
    """Return the nodes of a guest on the cells that their groups are mapped to."""
    cell_of = situation.cell_of
    nodes = list(guest.nodes)
    for group, uuids in request.providers_of.items():
        match = _GUEST_NODE.fullmatch(group)
        if match and uuids and uuids[0] in cell_of and int(match[1]) < len(nodes):
            index = int(match[1])
            if nodes[index].cell is None:
                nodes[index] = replace(nodes[index], cell=cell_of[uuids[0]])
    return tuple(nodes)


def _gift(
    request: ClaimRequest, situation: NodeSituation, guest: Guest, answer: Plan | Refusal
) -> Gift:
    """Return the units and cells of a plan.

    :raises ComputeResourcesUnavailable: it is none.
    :raises FitUndecided: it is not known whether there is one.
    """
    if isinstance(answer, Refusal) and answer.is_undecided:
        raise errors.FitUndecided(
            f"Node {situation.node} gives {request.instance} nothing, though it may fit: "
            f"{answer.sentence}, and more would hold up other claims. Schedule the instance on "
            "another host, or ask for fewer kinds of devices or NUMA nodes in its flavor."
        )
    if isinstance(answer, Refusal):
        is_on_cells = guest.nodes and not guest.floats
        nodes = f": its {len(guest.nodes)} NUMA node(s) do not fit" if is_on_cells else ""
        raise errors.ComputeResourcesUnavailable(
            f"Node {situation.node} cannot give {request.instance} what was allocated{nodes}: "
            f"{answer.sentence}. `compute-agent claims` shows who has what. Schedule the instance "
            "again."
        )
    # the provider that counts the dedicated CPUs of each cell
    pcpu_provider = {number: uuid for uuid, number in situation.cell_of.items()} or {
        cell.id: situation.root for cell in situation.cells
    }
    shared = {cell.id: cell.shared_cpus for cell in situation.cells}
    units = [
        AssignedUnit(pcpu_provider[part.cell], PCPU, str(cpu))
        for part in answer.parts
        for cpu in part.pinned_cpus
    ]
    units += [
        AssignedUnit(given.device, given.resource_class, name)
        for given in answer.given
        for name in given.units
    ]
    cells = tuple(
        ClaimedCell(
            part.cell,
            vcpus=part.vcpus,
            shared_cpus=shared[part.cell] if part.vcpus else (),
            pinned_cpus=part.pinned_cpus,
            memory_mib=part.memory_mib,
            page_size_kib=part.page_size_kib,
        )
        for part in answer.parts
    )
    return tuple(sorted(units)), cells
