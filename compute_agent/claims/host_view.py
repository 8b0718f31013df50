"""The host as the planner sees it, made from the tree of a node, its cells, and who has what."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from compute_agent.claims.host_cells import (
    DevicePlace,
    HostCell,
    cells_of_guest,
    floating_memory,
)
from compute_agent.claims.units import PCPU, by_number, holdings
from compute_agent.fitting.guest import Node
from compute_agent.fitting.host import DEFAULT_OPTIONS, Cell, Device, Host, PlanOptions, without
from compute_agent.provider_tree.trait_names import HW_NUMA_ROOT, NVLINK_PREFIX, XGMI_PREFIX
from compute_agent.state.claim import AssignedUnit, Claim, ClaimedCell
from compute_agent.virt.driver import InstanceDevices

if TYPE_CHECKING:
    from compute_agent.placement.allocations.amounts import Amounts
    from compute_agent.provider_tree import ProviderTree
    from compute_agent.request.pci_aliases import PciAlias

_CELL = re.compile(r"_NUMA(\d+)$")
_PAGES = re.compile(r"_PAGES(\d+)$")
_OVERCOMMITTED = ("VCPU", "MEMORY_MB")
LINKS = (NVLINK_PREFIX, XGMI_PREFIX)
"""Traits of devices that reach each other by links of their own."""
CELL_CLASSES = ("VCPU", PCPU, "MEMORY_MB")
"""What placement counts of a cell."""


class Occupancy(Struct, frozen=True):
    """What others have of a node.

    :ivar units: named units, dedicated CPUs among them.
    :ivar floating_mib: memory of guests that may be on any cell, by size of pages; None = ordinary.
    """

    units: frozenset[AssignedUnit]
    cells: Sequence[ClaimedCell]
    floating_mib: Mapping[int | None, int]


class HostNetworks(Struct, frozen=True):
    """The cells that are near the networks of this host."""

    physnets: Mapping[str, frozenset[int]] = MappingProxyType({})
    tunnel_cells: frozenset[int] = frozenset()

    def of(self, cell: int) -> frozenset[str]:
        """Return the physical networks that a cell is near."""
        return frozenset(name for name, cells in self.physnets.items() if cell in cells)


class CellPolicy(Struct, frozen=True):
    """What the operator configured about cells and devices.

    :param networks: the cells that are near networks.
    :param aliases: of PCI devices, for how near these must be.
    """

    networks: HostNetworks = HostNetworks()
    options: PlanOptions = DEFAULT_OPTIONS
    aliases: Sequence[tuple[str, PciAlias]] = ()


class NodeSituation(Struct, frozen=True, dict=True):
    """What a node has, and who has it, at one moment.

    :ivar units: the named units of the node.
    :ivar places: of PCI functions.
    :ivar claims: those on all nodes of the agent.
    :ivar guests: those that run here, by uuid.
    """

    node: str
    tree: ProviderTree
    root: str
    units: frozenset[AssignedUnit]
    cells: tuple[HostCell, ...]
    places: Mapping[str, DevicePlace]
    claims: Sequence[Claim]
    guests: Mapping[str, InstanceDevices]
    networks: HostNetworks = field(default_factory=HostNetworks)

    @cached_property
    def cell_of(self) -> dict[str, int]:
        """The providers that are NUMA cells, with the numbers of the cells; empty: a flat node."""
        return cell_providers(self.tree, self.root)


def cell_providers(tree: ProviderTree, root: str) -> dict[str, int]:
    """Return the providers of a node that are NUMA cells, with the numbers of the cells."""
    return {
        data.uuid: int(match[1])
        for data in map(tree.data, tree.get_provider_uuids(root))
        if HW_NUMA_ROOT in data.traits and (match := _CELL.search(data.name)) is not None
    }


def occupied(situation: NodeSituation, instance: str, *, moving: bool) -> Occupancy:
    """Return what an instance cannot have of a node.

    :param moving: what it has already stays with the source of its move.
    """
    claims = situation.claims
    claimed_units: dict[str, set[AssignedUnit]] = {}
    for claim in claims:
        if claim.consumer != instance or moving:
            claimed_units.setdefault(claim.instance, set()).update(claim.units)
    holders = holdings(claimed_units, situation.guests, situation.units)
    others = (held_units for holder, held_units in holders.items() if holder != instance)
    units = frozenset(claimed_units.get(instance, ())).union(*others)
    here = [claim for claim in claims if claim.node == situation.node]
    but = "" if moving else instance
    return Occupancy(units, *_used_cells(here, situation.cells, situation.guests, but=but))


def _used_cells(
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


def host_of(
    situation: NodeSituation, occupied: Occupancy, own_units: Collection[AssignedUnit] = ()
) -> Host:
    """Return what is free on a node.

    :param own_units: what the instance had before, which it is given first.
    """
    inventory = situation.tree.data(situation.root).inventory
    ratios = {
        name: float(inventory[name]["allocation_ratio"])
        for name in _OVERCOMMITTED
        if name in inventory
    }
    devices = tuple(_devices(situation, occupied.units, own_units))
    cells = tuple(_cells(situation, occupied, ratios))
    if not cells or situation.cell_of:
        return Host(cells, devices)
    memory = sum(max(cell.memory_mib, 0) for cell in cells)
    return Host(cells, devices, memory - occupied.floating_mib.get(None, 0))


def _cells(
    situation: NodeSituation, occupied: Occupancy, ratios: Mapping[str, float]
) -> Iterator[Cell]:
    """Yield the cells with what is free of them, overcommit included."""
    vcpus: Counter[int] = Counter()
    memory: Counter[tuple[int, int | None]] = Counter()
    for use in occupied.cells:
        vcpus[use.cell] += use.vcpus
        memory[use.cell, use.page_size_kib] += use.memory_mib
    _take_floating_pages(situation.cells, occupied.floating_mib, memory)
    taken_cpus = [int(unit.name) for unit in occupied.units if unit.resource_class == PCPU]
    for cell in situation.cells:
        shared_count = len(cell.shared_cpus)
        cores = without(cell.cores, taken_cpus)
        used_mib = memory[cell.id, None]
        yield Cell(
            cell.id,
            cores,
            pinnable=sum(len(core.cpus) for core in cores),
            vcpus=int((shared_count - cell.reserved_cpus) * ratios.get("VCPU", 1.0))
            - vcpus[cell.id],
            floating=shared_count,
            memory_mib=int(cell.memory_mib * ratios.get("MEMORY_MB", 1.0)) - used_mib,
            own_memory_mib=cell.memory_mib,
            pinned_memory_mib=cell.memory_mib - used_mib,
            pages_mib={size: mib - memory[cell.id, size] for size, mib in cell.pages_mib.items()},
            distances=cell.distances,
            package=cell.package,
            physnets=situation.networks.of(cell.id),
            tunneled=cell.id in situation.networks.tunnel_cells,
        )


def _take_floating_pages(
    cells: Sequence[HostCell],
    floating_mib: Mapping[int | None, int],
    memory: Counter[tuple[int, int | None]],
) -> None:
    """Take huge pages that may be on any cell off those with the most."""
    for size, missing in floating_mib.items():
        if size is None:
            continue
        free = {c.id: c.pages_mib[size] - memory[c.id, size] for c in cells if size in c.pages_mib}
        for cell in sorted(free, key=lambda cell: (-free[cell], cell)):
            taken = max(min(missing, free[cell]), 0)
            memory[cell, size] += taken
            missing -= taken


def _devices(
    situation: NodeSituation,
    taken_units: Collection[AssignedUnit],
    own_units: Collection[AssignedUnit],
) -> Iterator[Device]:
    """Yield the devices of a node: the providers and classes whose units have names.

    CPUs are among them where the driver knows of no cells.
    """
    tree, cell_of = situation.tree, situation.cell_of
    units_of: dict[tuple[str, str], list[AssignedUnit]] = {}
    for unit in situation.units:
        if unit.resource_class != PCPU or not situation.cells:
            units_of.setdefault((unit.provider_uuid, unit.resource_class), []).append(unit)

    def by_name(kind: tuple[str, str]) -> tuple[str, str]:
        return tree.data(kind[0]).name, kind[1]

    for kind in sorted(units_of, key=by_name):
        (provider, resource_class), units = kind, units_of[kind]
        data = tree.data(provider)
        free = sorted(
            (unit for unit in units if unit not in taken_units),
            key=lambda unit: (unit not in own_units, by_number(unit)),
        )
        place = _place(units, situation.places)
        groups = sorted(trait for trait in data.traits if trait.startswith(LINKS))
        yield Device(
            provider,
            resource_class,
            len(free),
            tuple(unit.name for unit in free),
            used=len(free) < len(units),
            cell=_cell_above(tree, provider, cell_of) if cell_of else place.cell,
            pcie_root=place.pcie_root,
            link_group=groups[0] if groups else "",
            traits=data.traits,
        )


def _place(units: Sequence[AssignedUnit], places: Mapping[str, DevicePlace]) -> DevicePlace:
    for unit in units:
        place = places.get(unit.name.partition("/")[0])
        if place is not None:
            return place
    return DevicePlace(None, "")


def _cell_above(tree: ProviderTree, provider: str, cell_of: Mapping[str, int]) -> int | None:
    uuid: str | None = provider
    while uuid is not None:
        if uuid in cell_of:
            return cell_of[uuid]
        uuid = tree.data(uuid).parent_uuid
    return None


def given_cells(
    situation: NodeSituation, amounts: Amounts, host: Host
) -> tuple[tuple[Cell, ...], dict[int, Node]]:
    """Return the cells that an allocation names, with no more than it has of them.

    :returns: the cells of the host with that, and what is allocated of each.
    """
    cell_of = situation.cell_of
    given: dict[int, Node] = {}
    pages: dict[int, dict[int, int]] = {}
    for uuid, classes in amounts.items():
        number = cell_of.get(uuid, cell_of.get(situation.tree.data(uuid).parent_uuid or ""))
        if number is None:
            continue
        if uuid in cell_of:
            vcpus, pinned, memory = (classes.get(name, 0) for name in CELL_CLASSES)
            given[number] = Node(vcpus, pinned, memory, cell=number)
        elif match := _PAGES.search(situation.tree.data(uuid).name):
            pages.setdefault(number, {})[int(match[1])] = classes.get("MEMORY_MB", 0)
    cells = []
    for cell in host.cells:
        own = given.get(cell.id, Node())
        cells.append(
            replace(
                cell,
                pinnable=min(own.pinned, cell.pinnable),
                vcpus=own.vcpus,
                memory_mib=own.memory_mib,
                own_memory_mib=None,
                pinned_memory_mib=None,
                pages_mib=pages.get(cell.id, {}),
            )
        )
    known = {cell.id for cell in host.cells}
    return tuple(cells), {
        number: node
        for number, node in sorted(given.items())
        if number in known and (node.vcpus or node.pinned or node.memory_mib)
    }
