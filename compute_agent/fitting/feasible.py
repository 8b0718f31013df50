"""Proof that nodes, devices and networks of a guest fit on cells together, or that they do not.

What counts of a way is the set of its cells: more cells reach more devices and networks. So cells
are added only where something is lacking, and only those that would help; which node is on which of
them a matching finds, and equal cells are tried once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from compute_agent.fitting.device_supply import DeviceSupply, GuestCells
from compute_agent.fitting.guest import LEGACY, REQUIRED, SOCKET
from compute_agent.fitting.matching import Matching, bits, covering

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
                tried[likeness] = chooser.can_serve(numbers, _alone(cell, node))
            mask |= tried[likeness] << cell
        allowed[node] = mask
    return allowed


def _alone(cell: int, node: int) -> GuestCells:
    return GuestCells(1 << cell, (0,) * node + (1 << cell,))


def way(allowed: Sequence[int], networks: Sequence[int], chooser: DeviceSupply) -> list[int] | None:
    """Return a cell for each node with which all rules are kept; None proves that there is none.

    :param networks: the cells of which one must be taken, for each network.
    """
    own = sorted(
        {
            wish.node
            for wish in chooser.wishes
            if wish.node is not None and wish.nearness in _NEAR and wish.node < len(allowed)
        }
    )
    return _Proof(networks, chooser).fix(list(allowed), own)


class _Proof:
    """The search for a way."""

    def __init__(self, networks: Sequence[int], chooser: DeviceSupply) -> None:
        self._networks = networks
        self._chooser = chooser

    def fix(self, allowed: list[int], nodes: Sequence[int]) -> list[int] | None:
        """Put nodes with devices of their own on cells, one after the other; then add cells."""
        self._chooser.limit.take()
        every = fixed = 0
        for mask in allowed:
            every |= mask
            fixed |= mask if mask.bit_count() == 1 else 0
        if Matching(allowed).complete() >= 0:
            return None
        if not self._chooser.can_reach(
            GuestCells(fixed, tuple(allowed)), every & ~fixed, len(allowed) - fixed.bit_count()
        ) or not self._chooser.can_serve(None, GuestCells(every, tuple(allowed))):
            return None
        if not nodes:
            return self._cover(allowed, fixed, 0)
        node = min(nodes, key=lambda number: (allowed[number].bit_count(), number))
        rest = [number for number in nodes if number != node]
        tried = set()
        for cell in bits(allowed[node]):
            likeness = self._likeness(allowed, cell)
            if likeness in tried:
                continue
            tried.add(likeness)
            narrowed = [mask & ~(1 << cell) for mask in allowed]
            narrowed[node] = 1 << cell
            found = self.fix(narrowed, rest)
            if found is not None:
                return found
        return None

    def _cover(self, allowed: list[int], taken: int, excluded: int) -> list[int] | None:
        """Return a way that takes all of `taken`, and none of `excluded` to help."""
        self._chooser.limit.take()
        cells = GuestCells(taken, tuple(allowed))
        helpful = self._helpful(cells)
        if helpful is None:
            return covering(allowed, taken)
        open_cells = ~taken & ~excluded
        missing = [near for near in self._networks if not near & taken]
        left = len(allowed) - taken.bit_count()
        if any(not near & open_cells for near in missing) or not self._chooser.can_reach(
            cells, open_cells, left
        ):
            return None
        gains = self._chooser.gains(cells)
        tried: list[int] = []
        order = sorted(
            bits(helpful & open_cells),
            key=lambda cell: (-gains[cell] - sum(near >> cell & 1 for near in missing), cell),
        )
        for cell in order:
            excluded |= 1 << cell
            if any(self._is_no_better(allowed, cell, other) for other in tried):
                continue
            tried.append(cell)
            if covering(allowed, taken | 1 << cell) is None:
                continue
            found = self._cover(allowed, taken | 1 << cell, excluded)
            if found is not None:
                return found
        return None

    def _helpful(self, cells: GuestCells) -> int | None:
        """Return the cells of which one must be added; None: nothing is lacking."""
        for near in self._networks:
            if not near & cells.mask:
                return near
        return self._chooser.lacking(cells)

    def _is_no_better(self, allowed: list[int], cell: int, other: int) -> bool:
        """Whether each way with a cell is one with another in its place, and no more lacking."""
        package, devices = self._chooser.likeness(cell)
        other_package, other_devices = self._chooser.likeness(other)
        return (
            package == other_package
            and not any(mask >> cell & ~(mask >> other) & 1 for mask in self._networks)
            and not any(mask >> cell & ~(mask >> other) & 1 for mask in allowed)
            and not Counter(devices) - Counter(other_devices)
        )

    def _likeness(self, allowed: list[int], cell: int) -> object:
        """Return what is equal for cells that may change places."""
        return (
            tuple(mask >> cell & 1 for mask in allowed),
            tuple(mask >> cell & 1 for mask in self._networks),
            self._chooser.likeness(cell),
        )
