"""Coverage: what wishes that compete for devices lack, and the most that further cells can add.

A demand is a set of wishes with the devices that may serve them. Each cell that a guest may still
get adds units to each demand. Whether so many cells can be enough is bounded by weights: if the
best cells add too little of the weighted sum, no cells are enough. Demands that the best cells
leave open get more weight, and the bound is tried again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from compute_agent.fitting.search.matching import bits

EVERY: Final = -1
_ROUNDS: Final = 8
_MARGIN: Final = 1 + 1e-9


class Supply(NamedTuple):
    """What one device has for a demand.

    :param units: the most that whole wishes can be.
    :param near: cells of which the guest must have one; `EVERY` = it may have any.
    :param near_of: likewise for wishes of a node, by its number.
    """

    units: int
    near: int
    near_of: Mapping[int, int]


class Demand(Struct, eq=False):
    """Wishes that compete for the same devices.

    :ivar total: units of all.
    :ivar own: units of those that are for one node, by its number.
    :ivar weight: that with which a bound last proved something.
    """

    total: int
    supplies: tuple[Supply, ...]
    own: Mapping[int, int] = {}
    weight: float = 1.0


class Shortage(NamedTuple):
    """What a demand lacks, and what each cell, and a node on a cell, would add."""

    demand: Demand
    missing: int
    gains: Mapping[int, int]
    own_gains: Mapping[int, Mapping[int | None, int]]


def shortages(
    demands: Iterable[Demand], taken: int, allowed: Sequence[int], fixed: int
) -> list[Shortage]:
    """Return what demands lack, of those that do, where the guest has the cells of `taken`.

    :param allowed: the cells of each node.
    :param fixed: the nodes that have but one of them, as bits.
    """
    every = (_shortage(demand, taken, allowed, fixed) for demand in demands)
    return [own for own in every if own.missing > 0]


def most_helpful(lacks: Sequence[Shortage], cells: int, node: int | None = None) -> list[int]:
    """Return cells, those first that add the most to what is lacking."""

    def value(cell: int) -> float:
        return sum(
            min(own.gains.get(cell, 0) + own.own_gains.get(cell, {}).get(node, 0), own.missing)
            / own.missing
            for own in lacks
        )

    return sorted(bits(cells), key=lambda cell: (-value(cell), cell))


def _shortage(demand: Demand, taken: int, allowed: Sequence[int], fixed: int) -> Shortage:
    missing = demand.total
    gains: dict[int, int] = {}
    now: dict[int, int] = {}
    own: dict[int, dict[int | None, int]] = {}
    for units, near, near_of in demand.supplies:
        if near == EVERY or near & taken:
            missing -= units
            continue
        for cell in bits(near):
            gains[cell] = gains.get(cell, 0) + units
        for node, cells in near_of.items():
            mask = cells & allowed[node]
            if not fixed >> node & 1:
                for cell in bits(mask & ~near):
                    of_cell = own.setdefault(cell, {})
                    of_cell[node] = min(of_cell.get(node, 0) + units, demand.own[node])
            elif mask:
                now[node] = now.get(node, 0) + units
    for node, units in now.items():
        missing -= min(units, demand.own[node])
    return Shortage(demand, missing, gains, own)


def narrowed(
    lacks: Sequence[Shortage], allowed: Sequence[int], open_cells: int, fixed: int, number: int
) -> list[int] | None:
    """Return the cells of each node without those with which something stays lacking.

    :param open_cells: that may be added.
    :param number: how many are.
    :returns: None: no cells are enough.
    """
    if not lacks:
        return list(allowed)
    nodes = [node for node in range(len(allowed)) if not fixed >> node & 1]
    weights = [lack.demand.weight / lack.missing for lack in lacks]
    for _round in range(_ROUNDS):
        bound = _Bound(lacks, weights, allowed, open_cells, nodes, number)
        needed = sum(w * s.missing for w, s in zip(weights, lacks, strict=True))
        if bound.most * _MARGIN < needed:
            for weight, lack in zip(weights, lacks, strict=True):
                lack.demand.weight = weight * lack.missing / needed * len(lacks)
            return None
        covered = [bound.covered(s) for s in lacks]
        if all(c >= s.missing for c, s in zip(covered, lacks, strict=True)):
            break
        weights = [
            w * 2 * s.missing / (s.missing + c)
            for w, c, s in zip(weights, covered, lacks, strict=True)
        ]
    return bound.without_useless(needed)


class _Bound:
    """The most that cells can add to the weighted demands."""

    def __init__(
        self,
        lacks: Sequence[Shortage],
        weights: Sequence[float],
        allowed: Sequence[int],
        open_cells: int,
        nodes: Sequence[int],
        number: int,
    ) -> None:
        self._allowed = allowed
        self._open = open_cells
        self._number = number
        values: dict[int, float] = {}
        own: dict[int | None, dict[int, float]] = {}
        for (_demand, missing, gains, own_gains), weight in zip(lacks, weights, strict=True):
            for cell, gain in gains.items():
                if open_cells >> cell & 1:
                    values[cell] = values.get(cell, 0.0) + weight * min(gain, missing)
            for cell, nodes_of in own_gains.items():
                before = gains.get(cell, 0)
                for node, gain in nodes_of.items():
                    more = weight * (min(before + gain, missing) - min(before, missing))
                    cells = own.setdefault(node, {})
                    cells[cell] = cells.get(cell, 0.0) + more
        self._values, self._own = values, own
        best_own = dict(values)
        for cells in own.values():
            for cell, value in cells.items():
                best_own[cell] = max(best_own.get(cell, 0.0), values.get(cell, 0.0) + value)
        self._order = sorted(values, key=lambda cell: (-values[cell], cell))
        by_cell = sorted(best_own.items(), key=lambda item: (-item[1], item[0]))[:number]
        self._of_node = {node: self._best(node) for node in nodes}
        by_node = sorted(((v, n, c) for n, (v, c) in self._of_node.items()), reverse=True)[:number]
        of_cells, of_nodes = sum(v for _c, v in by_cell), sum(v for v, _n, _c in by_node)
        self.most = min(of_cells, of_nodes)
        self._by_node = of_nodes
        self._chosen = (
            [(-1, cell) for cell, _v in by_cell]
            if of_cells < of_nodes
            else [(node, cell) for _v, node, cell in by_node if cell >= 0]
        )

    def _best(self, node: int) -> tuple[float, int]:
        allowed, values = self._allowed[node] & self._open, self._values
        cell = next((cell for cell in self._order if allowed >> cell & 1), -1)
        best = values.get(cell, 0.0), cell
        for cell, value in self._own.get(node, {}).items():
            if allowed >> cell & 1:
                best = max(best, (values.get(cell, 0.0) + value, cell))
        return best

    def covered(self, lack: Shortage) -> int:
        """Return how much of a demand the best cells add."""
        total, missing = 0, lack.missing
        for node, cell in self._chosen:
            units = lack.gains.get(cell, 0)
            own = lack.own_gains.get(cell)
            if own:
                units += max(own.values()) if node < 0 else own.get(node, 0)
            total += min(units, missing)
        return total

    def without_useless(self, needed: float) -> list[int]:
        """Return the cells of each node that are good enough if the others have the best."""
        left = list(self._allowed)
        if self._number < len(self._of_node):
            return left
        for node, (best, _cell) in self._of_node.items():
            least = needed / _MARGIN - (self._by_node - best)
            if least > 0:
                values, own = self._values, self._own.get(node, {})
                for cell in bits(left[node]):
                    if values.get(cell, 0.0) + own.get(cell, 0.0) < least - 1e-9:
                        left[node] &= ~(1 << cell)
        return left
