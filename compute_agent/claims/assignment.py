"""Assignment of units and NUMA cells to a claim, from what others on the node leave. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from compute_agent import errors
from compute_agent.claims.cell_choice import CellOccupancy, CellPolicy, choose_cells
from compute_agent.claims.host_cells import HostCell
from compute_agent.claims.occupancy import preferred_units, taken_units, used_cells
from compute_agent.claims.request import ClaimRequest
from compute_agent.claims.units import choose_units
from compute_agent.placement.allocations.amounts import Amounts
from compute_agent.state.claim import AssignedUnit, Claim, ClaimedCell

if TYPE_CHECKING:
    from compute_agent.provider_tree import ProviderTree
    from compute_agent.virt.driver import InstanceDevices


@dataclass(frozen=True, slots=True)
class NodeSituation:
    """What a node has to assign, and who has it, at one moment.

    :ivar units: the named units of the node.
    :ivar claims: those on all nodes of the agent.
    :ivar guests: those that run here, by uuid.
    """

    node: str
    tree: ProviderTree
    root: str
    units: frozenset[AssignedUnit]
    cells: tuple[HostCell, ...]
    claims: Sequence[Claim]
    guests: Mapping[str, InstanceDevices]


def choose_units_and_cells(
    request: ClaimRequest,
    amounts: Amounts,
    situation: NodeSituation,
    policy: CellPolicy,
    renewed_claim: Claim | None,
    *,
    moving: bool,
) -> tuple[tuple[AssignedUnit, ...], tuple[ClaimedCell, ...]]:
    """Return the units and the NUMA cells of a claim.

    :param renewed_claim: the claim of the same instance, which keeps what it has.
    :param moving: what the instance has already stays with the source of its move.
    :raises ComputeResourcesUnavailable: too few units are free, or no cells fit.
    """
    node, units, guests = situation.node, situation.units, situation.guests
    own = frozenset(renewed_claim.units if renewed_claim is not None else ())
    taken_names = taken_units(situation.claims, request.instance, units, guests, moving=moving)
    found_units, short = choose_units(amounts, units, taken_names, own)
    if short:
        raise errors.ComputeResourcesUnavailable(
            f"Node {node} cannot give {request.instance} what was allocated: "
            f"{'; '.join(short)}. `compute-agent claims` shows who has them."
        )
    if renewed_claim is not None and renewed_claim.amounts == amounts:
        return found_units, renewed_claim.cells
    claims_here = [claim for claim in situation.claims if claim.node == node]
    but = "" if moving else request.instance
    others = used_cells(claims_here, situation.cells, guests, but=but)
    use = CellOccupancy(situation.cells, others, taken_names)
    places = choose_cells(request, amounts, situation.tree, situation.root, use, policy)
    units_near, _short = choose_units(
        amounts, units, taken_names, preferred_units(own, units, places)
    )
    return units_near, places
