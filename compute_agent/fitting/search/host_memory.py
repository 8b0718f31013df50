"""Ordinary memory of a host, where it is too little for all nodes that may have it.

Of nodes that may have pages of any size those on cells with huge pages need none of it. So which
node is on which cell decides, not only whether all have one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from compute_agent.fitting.guest import Node
from compute_agent.fitting.host import ORDINARY
from compute_agent.fitting.room import Rooms
from compute_agent.fitting.search.matching import bits, covering
from compute_agent.fitting.search.packing import StepLimit


class HostMemory(Struct, eq=False):
    """The ordinary memory that nodes may have together, in MiB.

    :param needs: of each node, where it is not in huge pages.
    :param huge: of each node the cells that have huge pages for it, as bits.
    """

    limit: int
    needs: list[int]
    huge: list[int]
    steps: StepLimit

    def of(self, cells: Sequence[int]) -> int:
        """Return how much nodes on these cells have."""
        return sum(
            need
            for need, huge, cell in zip(self.needs, self.huge, cells, strict=True)
            if not huge >> cell & 1
        )

    def narrowed(self, allowed: Sequence[int]) -> list[int]:
        """Return the cells of each node, only those with huge pages where it must be in some.

        That is so if too little is left for it beside what others have in any case.
        """
        own = list(zip(self.needs, self.huge, allowed, strict=True))
        left = self.limit - sum(need for need, huge, mask in own if not huge & mask)
        return [mask & huge if need > left and mask & huge else mask for need, huge, mask in own]

    def covering(self, allowed: Sequence[int], cells: int) -> list[int] | None:
        """Return a cell for each node, all of `cells` among them, with memory for all nodes.

        :param allowed: the cells of each node.
        """
        in_pages = [mask & huge or mask for huge, mask in zip(self.huge, allowed, strict=True)]
        way = covering(in_pages, cells) or covering(allowed, cells)
        if way is not None and self.of(way) > self.limit:
            way = self.least(allowed, cells)
        return way if way is None or self.of(way) <= self.limit else None

    def least(self, allowed: Sequence[int], cells: int = 0) -> list[int]:
        """Return a cell for each node, all of `cells` among them, with which they have the least.

        There must be some such way.
        """
        bonus = sum(self.needs) + 1
        costs = [
            {
                cell: need * (not huge >> cell & 1) - bonus * (cells >> cell & 1)
                for cell in bits(mask)
            }
            for need, huge, mask in zip(self.needs, self.huge, allowed, strict=True)
        ]
        return _cheapest(costs, self.steps)


def host_memory(
    rooms: Rooms, nodes: Sequence[Node], limit: int | None, steps: StepLimit
) -> HostMemory | None:
    """Return the memory of a host that is too little for these nodes; None: it is enough."""
    needs = [node.memory_mib * (ORDINARY in node.page_sizes) for node in nodes]
    if limit is None or sum(needs) <= limit:
        return None
    huge = {
        node: sum(1 << i for i in range(len(rooms.cells)) if rooms.page_size(i, node))
        for node in nodes
    }
    return HostMemory(limit, needs, [huge[node] for node in nodes], steps)


def _cheapest(costs: Sequence[Mapping[int, int]], steps: StepLimit) -> list[int]:
    """Return a cell of its own for each node, at the least cost together: there must be a way.

    One node after the other is added by the cheapest augmenting path.
    """
    cell_of: list[int] = []
    node_of: dict[int, int] = {}
    for start in range(len(costs)):
        steps.take()
        total: dict[int, int] = {}
        via: dict[int, int] = {}
        queue = [(start, 0)]
        for node, before in queue:
            if node != start and before != total[cell_of[node]] - costs[node][cell_of[node]]:
                continue  # a cheaper path to it is later in the queue
            for cell, cost in costs[node].items():
                if cell not in total or before + cost < total[cell]:
                    total[cell], via[cell] = before + cost, node
                    if cell in node_of:
                        other = node_of[cell]
                        queue.append((other, before + cost - costs[other][cell]))
        cell = min(total.keys() - node_of.keys(), key=lambda free: (total[free], free))
        cell_of.append(-1)
        while cell >= 0:
            node = via[cell]
            node_of[cell] = node
            cell_of[node], cell = cell, cell_of[node]
    return cell_of
