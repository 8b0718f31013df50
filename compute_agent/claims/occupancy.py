"""Units and cells of a node that claims and guests occupy, and those a claim prefers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from compute_agent.claims.host_cells import HostCell, cells_of_guest
from compute_agent.claims.units import PCPU, holdings
from compute_agent.state.claim import AssignedUnit, Claim, ClaimedCell
from compute_agent.virt.driver import InstanceDevices


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


def used_cells(
    claims: Iterable[Claim],
    cells: Sequence[HostCell],
    guests: Mapping[str, InstanceDevices],
    *,
    but: str = "",
) -> list[ClaimedCell]:
    """Return what claims have of the cells, and guests that run without one.

    :param claims: those on the node.
    :param but: a consumer that is left out.
    """
    others = [claim for claim in claims if claim.consumer != but]
    claimed_cells = [cell for claim in others for cell in claim.cells]
    claimed_guests = {but, *(claim.instance for claim in others if claim.cells)}
    for guest, devices in sorted(guests.items()):
        if guest not in claimed_guests:
            claimed_cells += cells_of_guest(devices, cells)
    return claimed_cells


def preferred_units(
    own: frozenset[AssignedUnit],
    units: frozenset[AssignedUnit],
    cells: Sequence[ClaimedCell],
) -> frozenset[AssignedUnit]:
    """Return the units to choose first: the CPUs of the cells, else what there was before."""
    cpus = {str(cpu) for cell in cells for cpu in cell.pinned_cpus}
    if not cpus:
        return own
    pinned_units = {unit for unit in units if unit.resource_class == PCPU and unit.name in cpus}
    return frozenset(pinned_units).union(unit for unit in own if unit.resource_class != PCPU)
