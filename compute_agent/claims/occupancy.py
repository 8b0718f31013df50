"""Units, cells and memory of a node that claims and guests occupy. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from compute_agent.claims.host_cells import HostCell, cells_of_guest, floating_memory
from compute_agent.claims.units import PCPU, holdings
from compute_agent.state.claim import AssignedUnit, Claim, ClaimedCell
from compute_agent.virt.driver import InstanceDevices


class Occupancy(NamedTuple):
    """What others have of a node.

    :ivar units: named units, dedicated CPUs among them.
    :ivar floating_mib: memory of guests that may be on any cell, by size of pages; None = ordinary.
    """

    units: frozenset[AssignedUnit]
    cells: Sequence[ClaimedCell]
    floating_mib: Mapping[int | None, int]


def taken_units(
    claims: Iterable[Claim],
    instance: str,
    units: frozenset[AssignedUnit],
    guests: Mapping[str, InstanceDevices],
    *,
    moving: bool,
) -> frozenset[AssignedUnit]:
    """Return the units that the instance cannot have.

    :param guests: what runs here.
    :param moving: what it has already is kept for the migration, and so taken as well.
    """
    claimed_units: dict[str, set[AssignedUnit]] = {}
    for claim in claims:
        if claim.consumer != instance or moving:
            claimed_units.setdefault(claim.instance, set()).update(claim.units)
    holders = holdings(claimed_units, guests, units)
    others = (held_units for holder, held_units in holders.items() if holder != instance)
    return frozenset(claimed_units.get(instance, ())).union(*others)


def core_holders(cells: Iterable[HostCell], claims: Iterable[Claim]) -> list[dict[str, Any]]:
    """Return the cells with dedicated CPUs: of each core the CPUs, and the instance that has each.

    :param claims: those on the node.
    """
    holders = {
        int(unit.name): claim.instance
        for claim in claims
        for unit in claim.units
        if unit.resource_class == PCPU
    }
    return [
        {"id": cell.id, "cores": [[(cpu, holders.get(cpu)) for cpu in c.cpus] for c in cell.cores]}
        for cell in cells
        if cell.cores
    ]


def used_cells(
    claims: Iterable[Claim],
    cells: Sequence[HostCell],
    guests: Mapping[str, InstanceDevices],
    *,
    but: str = "",
) -> tuple[list[ClaimedCell], Counter[int | None]]:
    """Return what claims, and guests without one, have of the cells; and memory on any cell.

    :param claims: those on the node.
    :param but: a consumer that is left out.
    :returns: the memory in MiB, by size of pages; None = ordinary.
    """
    others = [claim for claim in claims if claim.consumer != but]
    claimed_cells = [cell for claim in others for cell in claim.cells]
    floating_mib: Counter[int | None] = Counter()
    for claim in others:
        if claim.cells or not (guests.get(claim.instance) or InstanceDevices()).cells:
            on_cells = sum(cell.memory_mib for cell in claim.cells)
            memory = sum(classes.get("MEMORY_MB", 0) for classes in claim.amounts.values())
            floating_mib[None] += max(memory - on_cells, 0)
    with_cells = {but, *(claim.instance for claim in others if claim.cells)}
    with_claim = {but, *(claim.instance for claim in others)}
    for guest, devices in sorted(guests.items()):
        if guest not in with_cells:
            claimed_cells += cells_of_guest(devices, cells)
        if guest not in with_claim:
            for size, memory in floating_memory(devices, cells):
                floating_mib[size] += memory
    return claimed_cells, floating_mib
