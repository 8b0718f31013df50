"""Room of the cells of a host for the nodes of a guest, and what taking it costs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import combinations
from typing import Final, NamedTuple

from compute_agent.fitting.cpus import (
    NO_COST,
    CoreRoom,
    CpuCost,
    cost_of,
    need_of,
    pick,
    room_of,
)
from compute_agent.fitting.guest import ISOLATE, REQUIRE, Guest, Node
from compute_agent.fitting.host import ORDINARY, Cell, Host, PlanOptions, without
from compute_agent.fitting.plan import CPUS, MEMORY, PAGES, PINNED, THREADS, Cost, DeviceCost, Part


class CellCost(NamedTuple):
    """The part of the cost of a plan that a node on a cell has, in the order of weight."""

    device_cells: int = 0
    fractions: int = 0
    broken_cores: int = 0
    l3_groups: int = 0
    l3_fractions: int = 0
    pinnable: int = 0
    vcpus: int = 0
    memory: int = 0


NO_CELL_COST: Final = CellCost()


def total_cost(
    pairs: int, devices: DeviceCost, costs: Sequence[CellCost], cells: tuple[int, ...]
) -> Cost:
    """Return the cost of a plan.

    :param pairs: sum of the distances between its cells.
    :param costs: of each node on its cell.
    """
    own = sums(costs)
    return Cost(
        devices.far,
        pairs + devices.distance,
        devices.link_groups,
        devices.pcie_roots,
        devices.broken_links,
        own[0],
        own[1],
        own[2],
        own[3],
        own[4],
        own[5:],
        cells,
        devices.devices,
    )


def sums(costs: Sequence[CellCost]) -> tuple[int, ...]:
    """Return the sum of each part of the costs."""
    return costs[0] if len(costs) == 1 else tuple(map(sum, zip(*costs, strict=True)))


class Rooms:
    """What every cell has for nodes of one guest.

    :param others: those of another guest on the same host, whose sums need not be made again.
    """

    def __init__(
        self, host: Host, guest: Guest, options: PlanOptions, others: Rooms | None = None
    ) -> None:
        self.cells = host.cells
        self._threads = guest.threads
        self._sign = 1 if options.packing else -1
        self._pins = pins = any(node.pinned or node.emulator_cpus for node in guest.nodes)
        self._rooms: list[CoreRoom | None]
        self._cpu_costs: dict[tuple[int, int], CpuCost]
        if others is not None and (others._pins, others._threads) == (pins, guest.threads):
            self._rooms, self._cpu_costs = others._rooms, others._cpu_costs
        else:
            self._rooms = [
                room_of(cell.cores) if pins and cell.cores else None for cell in host.cells
            ]
            self._cpu_costs = {}
        self._spared = _spared(host, guest) if options.spare_device_cells else [0] * len(self.cells)

    def pinnable(self, position: int) -> int:
        """Return how many dedicated CPUs a cell can give under the thread policy."""
        cell, room = self.cells[position], self._rooms[position]
        if room is None:
            return cell.pinnable
        if self._threads == REQUIRE:
            most = sum(size * number for size, number in room.whole.items() if size > 1)
        elif self._threads == ISOLATE:
            most = room.whole.get(1, 0)
        else:
            most = room.cpus
        return min(cell.pinnable, most)

    def has_pinned(self, position: int, count: int) -> bool:
        """Whether a cell can give just so many dedicated CPUs under the thread policy."""
        room = self._rooms[position]
        return room is None or need_of(room, count, self._threads) is not None

    def lacks(self, position: int, node: Node) -> str:
        """Return the rule that keeps a node off a cell; "" = none does."""
        cell = self.cells[position]
        if node.vcpus and node.vcpus > cell.shareable:
            return CPUS
        if node.pinned or node.emulator_cpus:
            if node.pinned + node.emulator_cpus > cell.pinnable:
                return PINNED
            room = self._rooms[position]
            if room is not None:
                if node.pinned + node.emulator_cpus > room.cpus:
                    return PINNED
                if (
                    self._threads in (REQUIRE, ISOLATE)
                    and need_of(room, node.pinned, self._threads) is None
                ):
                    return THREADS
        if node.memory_mib and self.page_size(position, node) is None:
            return MEMORY if ORDINARY in node.page_sizes else PAGES
        return ""

    def page_size(self, position: int, node: Node) -> int | None:
        """Return the size of the largest pages that hold the memory of a node; None: none do."""
        sizes = node.page_sizes
        if len(sizes) == 1:
            [size] = sizes
            return size if self._holds(position, node, size) else None
        return next(
            (size for size in sorted(sizes, reverse=True) if self._holds(position, node, size)),
            None,
        )

    def _holds(self, position: int, node: Node, size: int) -> bool:
        if size == ORDINARY:
            return node.memory_mib <= self.memory(position, node)
        whole = node.memory_mib * 1024 % size == 0
        return whole and node.memory_mib <= self.cells[position].pages_mib.get(size, 0)

    def memory(self, position: int, node: Node) -> int:
        """Return the ordinary memory that a node can have of a cell."""
        cell = self.cells[position]
        most = cell.memory_mib
        if cell.own_memory_mib is not None:
            most = min(most, cell.own_memory_mib)
        if (node.pinned or node.names_pages) and cell.pinned_memory_mib is not None:
            most = min(most, cell.pinned_memory_mib)
        return most

    def cost(self, position: int, node: Node) -> CellCost:
        """Return what a node on a cell that has room for it costs."""
        cell, room, cpus = self.cells[position], self._rooms[position], NO_COST
        if room is not None and node.pinned:
            asked_for = position, node.pinned
            if asked_for not in self._cpu_costs:
                self._cpu_costs[asked_for] = cost_of(room, node.pinned, self._threads) or NO_COST
            cpus = self._cpu_costs[asked_for]
        sign = self._sign
        room_left = sign * cell.pinnable, sign * cell.vcpus, sign * cell.memory_mib
        return CellCost(self._spared[position], *cpus, *room_left)

    def cost_of_way(
        self, positions: Sequence[int], nodes: Sequence[Node], devices: DeviceCost
    ) -> Cost:
        """Return what nodes on these cells cost, with their devices."""
        cells = self.cells
        pairs = (sorted(pair) for pair in combinations(positions, 2))
        distance = sum(cells[one].distance(cells[other].id) for one, other in pairs)
        costs = list(map(self.cost, positions, nodes))
        return total_cost(distance, devices, costs, tuple(cells[p].id for p in positions))

    def part(self, position: int, node: Node) -> Part:
        """Return what a node gets of a cell that has room for it."""
        cell = self.cells[position]
        cpus = pick(cell.cores, node.pinned, self._threads)
        emulator: tuple[int, ...] = ()
        if node.emulator_cpus:
            emulator = pick(without(cell.cores, cpus), node.emulator_cpus, "")
        size = self.page_size(position, node) if node.memory_mib else ORDINARY
        return Part(
            cell.id,
            node.vcpus,
            node.pinned + node.emulator_cpus,
            tuple(sorted(cpus + emulator)),
            emulator,
            node.memory_mib,
            size or None,
        )


def network_cells(cells: Sequence[Cell], guest: Guest) -> list[int]:
    """Return for each network of a guest that is near some cells these cells, as bits."""
    near = [
        sum(1 << i for i, cell in enumerate(cells) if name in cell.physnets)
        for name in sorted(guest.physnets)
    ]
    if guest.needs_tunnel:
        near.append(sum(1 << i for i, cell in enumerate(cells) if cell.tunneled))
    return [mask for mask in near if mask]


def _spared(host: Host, guest: Guest) -> list[int]:
    """Return for each cell how many kinds of free devices it has that the guest has no use for."""
    wanted: Collection[str] = {wish.resource_class for wish in guest.wishes}
    kinds: dict[int, set[str]] = {}
    for device in host.devices:
        if device.cell is not None and device.free and device.resource_class not in wanted:
            kinds.setdefault(device.cell, set()).add(device.resource_class)
    return [len(kinds.get(cell.id, ())) for cell in host.cells]
