"""Proof that nodes, devices and networks of a guest fit on cells together, or that they do not.

What counts of a way is the set of its cells: more cells reach more devices and networks. So cells
are added only where something is lacking, and only those that would help; which node is on which of
them a matching finds, and equal cells are tried once. Where the host is short of ordinary memory
it is the matching that takes the least of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from compute_agent.fitting.guest import LEGACY, REQUIRED, SOCKET
from compute_agent.fitting.search.coverage import Demand, Supply, most_helpful, narrowed, shortages
from compute_agent.fitting.search.device_supply import DeviceSupply, GuestCells
from compute_agent.fitting.search.host_memory import HostMemory
from compute_agent.fitting.search.matching import bits, covering

_NEAR = (REQUIRED, SOCKET, LEGACY)


def with_devices(allowed: list[int], chooser: DeviceSupply) -> list[int]:
    """Return the cells of each node on which all devices that are for it alone can be near."""
    wishes_of: dict[int, list[int]] = {}
    for number, wish in enumerate(chooser.wishes):
        if wish.node is not None and wish.nearness in _NEAR and wish.node < len(allowed):
            wishes_of.setdefault(wish.node, []).append(number)
    for node, numbers in wishes_of.items():
        mask = 0
        tried: dict[object, bool] = {}
        for cell in bits(allowed[node]):
            likeness = chooser.likeness(cell)
            if likeness not in tried:
                alone = GuestCells(1 << cell, (0,) * node + (1 << cell,))
                tried[likeness] = not chooser.short_kinds(alone, numbers)
            mask |= tried[likeness] << cell
        allowed[node] = mask
    return allowed


def way(
    allowed: Sequence[int],
    networks: Sequence[int],
    chooser: DeviceSupply,
    memory: HostMemory | None,
) -> list[int] | None:
    """Return a cell for each node with which all rules are kept; None proves that there is none.

    :param networks: the cells of which one must be taken, for each network.
    :param memory: the ordinary memory of the host, where it is too little for all nodes.
    """
    own = sorted(
        {
            wish.node
            for wish in chooser.wishes
            if wish.node is not None and wish.nearness in _NEAR and wish.node < len(allowed)
        }
    )
    proof = _Proof(networks, chooser, memory)
    return proof.fix(list(allowed), own, proof.demands)


class _Proof:
    """The search for a way.

    Wishes that once competed for too few devices are looked at first from then on.
    """

    def __init__(
        self, networks: Sequence[int], chooser: DeviceSupply, memory: HostMemory | None
    ) -> None:
        # what cells are good for, beside nodes and devices
        self._uses = [*networks, *(memory.huge if memory else ())]
        self._chooser = chooser
        self._with_memory = memory.narrowed if memory else list
        self._covering = memory.covering if memory else covering
        self.demands = [Demand(1, (Supply(1, near, {}),)) for near in networks]
        self._known: set[frozenset[int]] = set()
        for number in range(len(chooser.kinds)):
            self._learn(frozenset((number,)))

    def _learn(self, kinds: frozenset[int]) -> None:
        """Look at kinds of wishes together from now on."""
        if kinds not in self._known:
            self._known.add(kinds)
            self.demands += self._chooser.demands(kinds)

    def fix(
        self, allowed: list[int], nodes: Sequence[int], demands: Sequence[Demand]
    ) -> list[int] | None:
        """Put nodes with devices of their own on cells, one after the other; then add cells.

        :param demands: those that may be lacking something.
        """
        while True:
            self._chooser.limit.take()
            allowed = self._with_memory(allowed)
            every = taken = fixed = 0
            for node, mask in enumerate(allowed):
                every |= mask
                if mask.bit_count() == 1:
                    taken |= mask
                    fixed |= 1 << node
            if self._covering(allowed, 0) is None:
                return None
            seen = len(self.demands)
            lacks = shortages(demands, taken, allowed, fixed)
            left = narrowed(lacks, allowed, every & ~taken, fixed, len(allowed) - fixed.bit_count())
            if left is None:
                return None
            if left == allowed:
                break
            allowed = left
        short = self._chooser.short_kinds(GuestCells(every, tuple(allowed)))
        if short:
            self._learn(short)
            return None
        nodes = [node for node in nodes if not fixed >> node & 1]
        if not nodes:
            return self._cover(allowed, taken, fixed, [own.demand for own in lacks])
        node = min(nodes, key=lambda number: (allowed[number].bit_count(), number))
        tried = set()
        for cell in most_helpful(lacks, allowed[node], node):
            likeness = self._likeness(allowed, cell)
            if likeness in tried:
                continue
            tried.add(likeness)
            with_cell = [mask & ~(1 << cell) for mask in allowed]
            with_cell[node] = 1 << cell
            still_open = [own.demand for own in lacks] + self.demands[seen:]
            found = self.fix(with_cell, nodes, still_open)
            if found is not None:
                return found
        return None

    def _cover(
        self, allowed: list[int], taken: int, fixed: int, demands: Sequence[Demand]
    ) -> list[int] | None:
        """Return a way that takes all of `taken`.

        :param fixed: nodes that are on certain of these cells, as bits.
        """
        self._chooser.limit.take()
        seen = len(self.demands)
        lacks = shortages(demands, taken, allowed, fixed)
        helpful = 0
        if not lacks:
            short = self._chooser.short_kinds(GuestCells(taken, tuple(allowed)))
            if not short:
                return self._covering(allowed, taken)
            helpful = self._chooser.helpful(short, taken)
            self._learn(short)
            lacks = shortages(self.demands[seen:], taken, allowed, fixed)
        every = 0
        for mask in allowed:
            every |= mask
        open_cells = every & ~taken
        number = len(allowed) - taken.bit_count()
        if narrowed(lacks, allowed, open_cells, fixed, number) is None:
            return None
        if lacks:
            sets = [sum(1 << cell for cell in own.gains) & open_cells for own in lacks]
            helpful = min(sets, key=int.bit_count)
        tried: list[int] = []
        left = allowed
        for cell in most_helpful(lacks, helpful & open_cells):
            if not any(self._is_no_better(allowed, cell, other) for other in tried):
                tried.append(cell)
                if self._covering(left, taken | 1 << cell) is not None:
                    still_open = [own.demand for own in lacks] + self.demands[seen:]
                    found = self._cover(left, taken | 1 << cell, fixed, still_open)
                    if found is not None:
                        return found
            left = [mask & ~(1 << cell) for mask in left]
        return None

    def _is_no_better(self, allowed: list[int], cell: int, other: int) -> bool:
        """Whether each way with a cell is one with another in its place, and no more lacking."""
        package, devices = self._chooser.likeness(cell)
        other_package, other_devices = self._chooser.likeness(other)
        return (
            package == other_package
            and not any(mask >> cell & ~(mask >> other) & 1 for mask in self._uses)
            and not any(mask >> cell & ~(mask >> other) & 1 for mask in allowed)
            and not Counter(devices) - Counter(other_devices)
        )

    def _likeness(self, allowed: list[int], cell: int) -> object:
        """Return what is equal for cells that may change places."""
        return (
            tuple(mask >> cell & 1 for mask in allowed),
            tuple(mask >> cell & 1 for mask in self._uses),
            self._chooser.likeness(cell),
        )
