"""Choosing the NUMA cells of a claim: within the cells that were allocated, else on the whole host.

nested layout   the allocation names cells: the guest's nodes must fit on what it has of them
flat layout     the allocation is on the root: any cells with room for the nodes
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from compute_agent import errors
from compute_agent.claims import numa_fit
from compute_agent.claims.guest_needs import guest_needs
from compute_agent.claims.host_cells import FreeCell, HostCell, free_cells
from compute_agent.claims.numa_fit import GuestNeeds, HostNetworks
from compute_agent.claims.units import PCPU
from compute_agent.provider_tree.trait_names import HW_NUMA_ROOT
from compute_agent.state.claim import AssignedUnit, ClaimedCell

if TYPE_CHECKING:
    from compute_agent.claims.request import ClaimRequest
    from compute_agent.placement.allocations.amounts import Amounts
    from compute_agent.provider_tree import ProviderTree

_CELL = re.compile(r"_NUMA(\d+)$")
_PAGES = re.compile(r"_PAGES(\d+)$")
_GUEST_NODE = re.compile(r"_NUMA(\d+)")
_OVERCOMMITTED = ("VCPU", "MEMORY_MB")


class CellPolicy(NamedTuple):
    """What the operator configured about cells.

    :param networks: the cells that are near networks.
    :param packing: cells with the least room are taken first, instead of those with the most.
    """

    networks: HostNetworks = HostNetworks()
    packing: bool = False


class CellOccupancy(NamedTuple):
    """The cells of a node, and what others have of them.

    :param taken_units: named units that others have, dedicated CPUs among them.
    """

    cells: Sequence[HostCell]
    claimed_cells: Sequence[ClaimedCell]
    taken_units: Collection[AssignedUnit]


def choose_cells(
    request: ClaimRequest,
    amounts: Amounts,
    tree: ProviderTree,
    root: str,
    use: CellOccupancy,
    policy: CellPolicy,
) -> tuple[ClaimedCell, ...]:
    """Return the cells for the NUMA nodes of a guest; empty for a guest that floats over all.

    :param amounts: what it has on this node, by provider and class.
    :raises ComputeResourcesUnavailable: its nodes do not fit.
    :raises InvalidInput: its flavor cannot be read.
    """
    if not use.cells:
        return ()  # the driver knows of no cells
    allocated_amounts: Counter[str] = Counter()
    for classes in amounts.values():
        allocated_amounts.update(classes)
    sizes = {size for cell in use.cells for size in cell.pages_mib}
    needs = guest_needs(request.instance, request.spec, allocated_amounts, sizes)
    cell_of = cell_providers(tree, root)
    if cell_of:
        return _cells_of_nested_layout(request, needs, amounts, tree, cell_of, use, policy)
    return _flat(request, needs, free_on_root(tree, root, use), policy)


def cell_providers(tree: ProviderTree, root: str) -> dict[str, int]:
    """Return the providers of a node that are NUMA cells, with the numbers of the cells."""
    return {
        uuid: int(match[1])
        for uuid in tree.get_provider_uuids(root)
        if HW_NUMA_ROOT in tree.data(uuid).traits
        and (match := _CELL.search(tree.data(uuid).name)) is not None
    }


def free_on_root(tree: ProviderTree, root: str, use: CellOccupancy) -> tuple[FreeCell, ...]:
    """Return what is free of the cells of a node whose CPUs and memory are on its root."""
    inventory = tree.data(root).inventory
    ratios = {
        rc: float(inventory[rc]["allocation_ratio"]) for rc in _OVERCOMMITTED if rc in inventory
    }
    cpus = {int(unit.name) for unit in use.taken_units if unit.resource_class == PCPU}
    return free_cells(use.cells, use.claimed_cells, cpus, ratios)


def _flat(
    request: ClaimRequest, needs: GuestNeeds, free: Sequence[FreeCell], policy: CellPolicy
) -> tuple[ClaimedCell, ...]:
    whole = needs.nodes[0]
    if not needs.names_nodes and not whole.pinned_count:
        return ()
    cells = numa_fit.fit(needs, free, policy.networks, packing=policy.packing)
    if cells is None and not needs.names_nodes:
        # on one cell where that is possible, as nobody asked for it
        return numa_fit.spread(whole, free)
    if cells is None:
        _refuse(request, needs, free, policy)
    return cells


def _cells_of_nested_layout(
    request: ClaimRequest,
    needs: GuestNeeds,
    amounts: Amounts,
    tree: ProviderTree,
    cell_of: Mapping[str, int],
    use: CellOccupancy,
    policy: CellPolicy,
) -> tuple[ClaimedCell, ...]:
    given_cells = _given_cells(amounts, tree, cell_of, use)
    if not needs.names_nodes:
        return tuple(
            ClaimedCell(
                cell.id,
                vcpus=cell.vcpus,
                shared_cpus=cell.shared_cpus if cell.vcpus else (),
                pinned_cpus=cell.pinnable,
                memory_mib=cell.memory_mib,
            )
            for cell in given_cells
        )
    bound_cells = {
        int(match[1]): cell_of[uuids[0]]
        for group, uuids in request.providers_of.items()
        if (match := _GUEST_NODE.fullmatch(group)) and uuids and uuids[0] in cell_of
    }
    cells = numa_fit.fit(
        needs, given_cells, policy.networks, packing=policy.packing, bound_cells=bound_cells
    )
    if cells is None:
        _refuse(request, needs, given_cells, policy)
    return cells


def _given_cells(
    amounts: Amounts, tree: ProviderTree, cell_of: Mapping[str, int], use: CellOccupancy
) -> list[FreeCell]:
    """Return the cells that an allocation names, with no more than it has of them."""
    known_cells = {cell.id: cell for cell in use.cells}
    given_cells: dict[int, FreeCell] = {}
    for uuid, classes in amounts.items():
        parent = tree.data(uuid).parent_uuid or ""
        number = cell_of.get(uuid, cell_of.get(parent))
        if number is None or number not in known_cells:
            continue
        cell = given_cells.setdefault(
            number, FreeCell(number, known_cells[number].shared_cpus, 0, (), 0)
        )
        if uuid in cell_of:
            free = _free_cpus(tree, uuid, use)[: classes.get(PCPU, 0)]
            memory = classes.get("MEMORY_MB", 0)
            cell = replace(cell, vcpus=classes.get("VCPU", 0), pinnable=free, memory_mib=memory)
        elif (pages := _PAGES.search(tree.data(uuid).name)) is not None:
            in_pages = {int(pages[1]): classes.get("MEMORY_MB", 0)}
            cell = replace(cell, pages_mib={**cell.pages_mib, **in_pages})
        given_cells[number] = cell
    return [given_cells[number] for number in sorted(given_cells) if _has_any(given_cells[number])]


def _has_any(cell: FreeCell) -> bool:
    """Whether anything of the cell was given, and not only of a device below it."""
    return bool(cell.vcpus or cell.pinnable or cell.memory_mib or any(cell.pages_mib.values()))


def _free_cpus(tree: ProviderTree, uuid: str, use: CellOccupancy) -> tuple[int, ...]:
    taken_cpus = {unit.name for unit in use.taken_units if unit.provider_uuid == uuid}
    units = tree.data(uuid).resources.get(PCPU, frozenset())
    return tuple(sorted(int(u.identifier) for u in units if u.identifier not in taken_cpus))


def _refuse(
    request: ClaimRequest, needs: GuestNeeds, cells: Sequence[FreeCell], policy: CellPolicy
) -> NoReturn:
    """Refuse a guest that fits on no cells.

    :raises ComputeResourcesUnavailable: always, with what is in the way.
    """
    anywhere = needs._replace(physnets=frozenset(), needs_tunnel=False)
    away = numa_fit.fit(anywhere, cells, policy.networks) is not None
    reason = (
        "its networks are near other cells ([neutron]physnets)"
        if away
        else "; ".join(dict.fromkeys(numa_fit.shortage(node, cells) for node in needs.nodes))
    )
    raise errors.ComputeResourcesUnavailable(
        f"The {len(needs.nodes)} NUMA node(s) of {request.instance} do not fit on cells of their "
        f"own: {reason}. Schedule the instance again."
    )
