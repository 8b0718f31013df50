"""Search for the best cells for the nodes of a guest, node by node, within a budget of steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from compute_agent.fitting.guest import Guest, Node
from compute_agent.fitting.host import FAR, Cell, Host
from compute_agent.fitting.plan import Cost, DeviceCost
from compute_agent.fitting.room import (
    NO_CELL_COST,
    CellCost,
    Rooms,
    network_cells,
    sums,
    total_cost,
)
from compute_agent.fitting.search.device_supply import GuestCells
from compute_agent.fitting.search.devices import NOTHING, DeviceChooser
from compute_agent.fitting.search.host_memory import HostMemory
from compute_agent.fitting.search.matching import Matching, bits

_SMALL: Final = 512
"""Pairs of a node and a cell up to which the costs of all are looked at."""

_DISTANCES_OF_A_STEP: Final = 40
"""So many distances between cells and devices cost as much time as a step."""


class NodeSearch:
    """A search through the ways to put nodes on cells, node by node.

    :ivar best: the cost of the best way so far.
    :ivar cells: of the nodes, in that way.
    :ivar is_exhaustive: there is no better one.
    """

    def __init__(
        self,
        host: Host,
        guest: Guest,
        nodes: tuple[Node, ...],
        rooms: Rooms,
        chooser: DeviceChooser,
        allowed: list[int],
        memory: HostMemory | None,
    ) -> None:
        self._cells = host.cells
        self._nodes = nodes
        self._rooms = rooms
        self._chooser = chooser
        self._allowed = allowed
        self._memory = memory
        self._networks = network_cells(host.cells, guest)
        self._costs: dict[tuple[Node, int], CellCost] = {}
        named = {wish.node for wish in guest.wishes}
        self._alike = [
            number > 0 and nodes[number] == nodes[number - 1] and not named & {number, number - 1}
            for number in range(len(nodes))
        ]
        # the least that as many cells as there are nodes are from devices for all
        self._least_device = sum(
            min(sum(sorted(chooser.distances(device))[: len(nodes)]) for device in candidates)
            for candidates in chooser.candidates
        )
        self._distances = _distances(self._cells) if len(nodes) > 1 else [[] for _ in host.cells]
        self._least_pair = (
            min(min(row[i + 1 :]) for i, row in enumerate(self._distances[:-1]))
            if len(nodes) > 1 and len(self._cells) > 1
            else 0
        )
        # with more the budget ends anyway: the first ways are as good as others
        self._is_small = len(nodes) * len(self._cells) <= _SMALL
        self._least_costs = (
            [
                CellCost(
                    *map(min, zip(*(self._cost(node, cell) for cell in bits(mask)), strict=True))
                )
                for node, mask in zip(nodes, allowed, strict=True)
            ]
            if self._is_small and len(nodes) > 1
            else [CellCost()]
        )
        spare = [mask.bit_count() for mask in allowed]
        self._scarce = [
            min(spare[number + 1 :], default=len(nodes)) < len(nodes)
            for number in range(len(nodes))
        ]
        self._matching = Matching(allowed)
        self._matching.complete()
        self._chosen: list[int] = []
        self.best: Cost | None = None
        self.cells: list[int] = []
        self.steps = 0
        self._budget = 0
        self.is_exhaustive = True

    def run(self, budget: int) -> None:
        """Search until nothing better is left, or for as many steps."""
        self._budget = budget
        self._place(0, 0, 0, [0] * len(self._cells))

    def _cost(self, node: Node, cell: int) -> CellCost:
        cost = self._costs.get((node, cell))
        if cost is None:
            cost = self._costs[node, cell] = self._rooms.cost(cell, node)
        return cost

    def _place(self, number: int, mask: int, distance: int, added: list[int]) -> None:
        """Put a node on each cell that may be best, and the rest after it.

        :param added: for each cell the sum of its distances from the cells of the nodes before.
        """
        nodes = self._nodes
        if number == len(nodes):
            self._take(mask, distance)
            return
        node, chosen = nodes[number], self._chosen
        free = self._allowed[number] & ~mask
        if self._alike[number]:
            free &= -2 << chosen[-1]
        later = len(nodes) - number - 1
        if not later:
            for near in self._networks:
                if not near & mask:
                    free &= near
        if self._is_small:
            candidates = [(added[cell], self._cost(node, cell), cell) for cell in bits(free)]
        else:
            candidates = [(added[cell], NO_CELL_COST, cell) for cell in bits(free)]
        candidates.sort()
        pairs = len(nodes) * (len(nodes) - 1) // 2 - number * (number - 1) // 2 - number
        least = distance + pairs * self._least_pair + self._least_device
        for more, cost, cell in candidates:
            self.steps += 1
            if self.steps + self._chooser.steps > self._budget:
                self.is_exhaustive = False
                return
            if self.best is not None and not self.best.far:
                if least + more > self.best.distance:
                    return
                if least + more == self.best.distance and self._is_worse(number, cost, cell):
                    continue
            before = None
            if self._scarce[number] and later:
                before = self._matching.state()
                if not self._matching.move(number, cell, mask):
                    continue
            chosen.append(cell)
            row = self._distances[cell]
            self._place(
                number + 1,
                mask | 1 << cell,
                distance + more,
                [sum(pair) for pair in zip(added, row, strict=True)] if later else added,
            )
            chosen.pop()
            if before is not None:
                self._matching.restore(before)
            if not self.is_exhaustive:
                return

    def _is_worse(self, number: int, cost: CellCost, cell: int) -> bool:
        """Whether a way of the least distance is not better, whichever cells the later nodes get.

        That is so if it costs as much and its cells have higher numbers.
        """
        best, cells = self.best, self._cells
        assert best is not None
        ids = (*[cells[chosen].id for chosen in self._chosen], cells[cell].id)
        if not self._is_small:
            return False
        costs = [self._cost(n, c) for n, c in zip(self._nodes, self._chosen, strict=False)]
        costs += [cost, *self._least_costs[number + 1 :]]
        links = self._chooser.least_groups, self._chooser.least_roots, 0
        return (*links, *sums(costs), *ids) > (*best[2:10], *best.room, *best.cells[: number + 1])

    def _take(self, mask: int, distance: int) -> None:
        for near in self._networks:
            if not near & mask:
                return
        cells, best, chooser = self._chosen, self.best, self._chooser
        if self._memory is not None and self._memory.of(cells) > self._memory.limit:
            return
        costs = [self._cost(node, cell) for node, cell in zip(self._nodes, cells, strict=True)]
        ids = tuple([self._cells[cell].id for cell in cells])
        devices: DeviceCost | None = NOTHING
        if chooser.wishes:
            self.steps += chooser.weight * len(cells) // _DISTANCES_OF_A_STEP
            guest_cells = GuestCells(mask, tuple([1 << cell for cell in cells]))
            prices = chooser.prices(guest_cells)
            if prices is None:
                return
            if best is not None:
                least = DeviceCost(
                    prices.far,
                    prices.distance,
                    chooser.least_groups,
                    chooser.least_roots,
                    0,
                    (),
                )
                if total_cost(distance, least, costs, ids) > best:
                    return
            devices = chooser.best(guest_cells, prices)
            if devices is None:
                return
        assert devices is not None
        cost = total_cost(distance, devices, costs, ids)
        if best is None or cost < best:
            self.best, self.cells = cost, cells[:]


def _distances(cells: Sequence[Cell]) -> list[list[int]]:
    """Return the distances between cells, by position; the same both ways."""
    ids = [cell.id for cell in cells]
    rows: list[list[int]] = []
    for position, cell in enumerate(cells):
        own = [row[position] for row in rows]
        rest = [cell.distances.get(other, FAR) for other in ids[position + 1 :]]
        rows.append([*own, cell.distance(cell.id), *rest])
    return rows
