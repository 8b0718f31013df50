"""Proof that nodes, devices and networks of a guest fit on cells together, or that they do not.

What counts of a way is the set of its cells: more cells reach more devices and networks. So cells
are added only where something is lacking, and only those that would help; which node is on which of
them a matching finds, and equal cells are tried once.
"""

from __future__ import annotations

from collections.abc import Sequence

from compute_agent.fitting.device_supply import DeviceSupply, GuestCells
from compute_agent.fitting.guest import LEGACY, REQUIRED, SOCKET
from compute_agent.fitting.matching import Matching, bits, covering

_NEAR = (REQUIRED, SOCKET, LEGACY)


def with_devices(allowed: list[int], chooser: DeviceSupply) -> list[int]:
    """Return the cells of each node on which every device that is for it alone can be near."""
    for number, wish in enumerate(chooser.wishes):
        if wish.node is None or wish.nearness not in _NEAR or wish.node >= len(allowed):
            continue
        mask = 0
        for cell in bits(allowed[wish.node]):
            cells = GuestCells(1 << cell)
            if any(chooser.is_allowed(wish, d, cells) for d in chooser.candidates[number]):
                mask |= 1 << cell
        allowed[wish.node] = mask
    return allowed


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
        every = 0
        for mask in allowed:
            every |= mask
        if (
            Matching(allowed).complete() >= 0
            or self._chooser.possible(GuestCells(every, tuple(allowed))) is None
        ):
            return None
        if not nodes:
            fixed = 0
            for mask in allowed:
                fixed |= mask if mask.bit_count() == 1 else 0
            return self._cover(allowed, fixed, 0)
        for cell in bits(allowed[nodes[0]]):
            narrowed = [mask & ~(1 << cell) for mask in allowed]
            narrowed[nodes[0]] = 1 << cell
            found = self.fix(narrowed, nodes[1:])
            if found is not None:
                return found
        return None

    def _cover(self, allowed: list[int], taken: int, excluded: int) -> list[int] | None:
        """Return a way that takes all of `taken`, and none of `excluded` to help."""
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
        tried = set()
        order = sorted(
            bits(helpful & open_cells),
            key=lambda cell: (-gains[cell] - sum(near >> cell & 1 for near in missing), cell),
        )
        for cell in order:
            excluded |= 1 << cell
            likeness = self._likeness(allowed, cell)
            if likeness in tried:
                continue
            tried.add(likeness)
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

    def _likeness(self, allowed: list[int], cell: int) -> object:
        """Return what is equal for cells that may change places."""
        return (
            tuple(mask >> cell & 1 for mask in allowed),
            tuple(mask >> cell & 1 for mask in self._networks),
            self._chooser.likeness(cell),
        )
