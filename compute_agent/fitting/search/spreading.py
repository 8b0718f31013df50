"""Guests that name no nodes and fit on no cell alone: their CPUs and memory over the fewest cells.

Memory may come from cells that give no CPU, and CPUs from cells that give no memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Final

from msgspec import Struct

from compute_agent.fitting.guest import REQUIRE, Guest, Node
from compute_agent.fitting.host import Host
from compute_agent.fitting.plan import Cost, Part
from compute_agent.fitting.room import Rooms, network_cells
from compute_agent.fitting.search.device_supply import GuestCells
from compute_agent.fitting.search.devices import DeviceChooser
from compute_agent.fitting.search.matching import Matching

Amounts = tuple[int, int, int]
"""Floating CPUs, pinned CPUs, MiB."""
_KINDS: Final = range(3)
_STEPS_OF_A_WAY: Final = 40
"""A set of cells costs as much time as so many steps of the budget."""


class Spread(Struct, frozen=True):
    """A guest laid over several cells.

    :param is_best: no other way is better; else the budget of steps ended.
    """

    parts: tuple[Part, ...]
    cost: Cost
    is_best: bool
    steps: int


class _Way(Struct, frozen=True):
    cost: Cost
    positions: tuple[int, ...]
    nodes: tuple[Node, ...]


class Spreading:
    """One guest, and what each cell can give of it."""

    def __init__(self, host: Host, guest: Guest, rooms: Rooms, chooser: DeviceChooser) -> None:
        self._rooms = rooms
        self._chooser = chooser
        self._networks = network_cells(host.cells, guest)
        self._whole = whole = guest.nodes[0]
        self._is_whole = guest.threads == REQUIRE and any(cell.cores for cell in host.cells)
        self._needs: Amounts = (whole.vcpus, whole.pinned, whole.memory_mib)
        self._room: list[Amounts] = [
            (
                cell.shareable,
                max(rooms.pinnable(position), 0),
                max(rooms.memory(position, whole), 0),
            )
            for position, cell in enumerate(host.cells)
        ]
        self._usable = [
            position
            for position, room in enumerate(self._room)
            if any(need and amount for need, amount in zip(self._needs, room, strict=True))
        ]

    def best(self, budget: int) -> Spread | None:
        """Return the best way to lay the guest over several cells; None: there is no way."""
        if not self._is_enough(self._usable) or not self._is_near(self._usable):
            return None
        steps = 0
        for number in range(max(2, self._least_number()), len(self._usable) + 1):
            best: _Way | None = None
            for positions in combinations(self._usable, number):
                steps += 1
                self._chooser.limit.take()
                if steps == budget // _STEPS_OF_A_WAY + 1:
                    # without any way yet the search goes on: only trying out proves that few
                    # CPUs and MiB, of which every cell must give one, cannot be distributed
                    best = best or self._any()
                    if best is not None:
                        return self._spread(best, steps, is_best=False)
                if not self._is_enough(positions):
                    continue
                way = self._way(positions)
                if way is not None and (best is None or way.cost < best.cost):
                    best = way
            if best is not None:
                return self._spread(best, steps, is_best=True)
        return None

    def _least_number(self) -> int:
        """Return how many cells are needed at the least."""
        least = 1
        for kind in _KINDS:
            missing, number = self._needs[kind], 0
            for amount in sorted((self._room[p][kind] for p in self._usable), reverse=True):
                if missing <= 0:
                    break
                missing -= amount
                number += 1
            least = max(least, number)
        return least

    def _is_enough(self, positions: Sequence[int]) -> bool:
        return all(
            sum(self._room[position][kind] for position in positions) >= self._needs[kind]
            for kind in _KINDS
            if self._needs[kind]
        )

    def _any(self) -> _Way | None:
        """Return some way: all cells, less those without which it does as well."""
        positions = list(self._usable)
        way = self._way(tuple(positions))
        for position in list(positions):
            fewer = [other for other in positions if other != position]
            if self._is_enough(fewer) and self._is_near(fewer):
                better = self._way(tuple(fewer))
                if better is not None or way is None:
                    way, positions = better, fewer
        return way

    def _is_near(self, positions: Sequence[int]) -> bool:
        """Whether networks and devices are near these cells."""
        mask = sum(1 << position for position in positions)
        return all(near & mask for near in self._networks) and (
            self._chooser.possible(GuestCells(mask)) is not None
        )

    def _way(self, positions: tuple[int, ...]) -> _Way | None:
        mask = sum(1 << position for position in positions)
        if any(not near & mask for near in self._networks):
            return None
        devices = self._chooser.best(GuestCells(mask))
        if devices is None:
            return None
        for nodes in self._shares(positions):
            if not any(map(self._rooms.lacks, positions, nodes)):
                return _Way(self._rooms.cost_of_way(positions, nodes, devices), positions, nodes)
        return None

    def _shares(self, positions: tuple[int, ...]) -> Iterator[tuple[Node, ...]]:
        """Yield ways to distribute the guest, so that every cell gives something."""
        emulator_cpus = self._whole.emulator_cpus
        for reserved in self._reservations(positions):
            shares = self._distributed(positions, reserved)
            if not all(map(any, shares)):
                continue
            for first in range(len(positions) if emulator_cpus else 1):
                yield tuple(
                    Node(*share, emulator_cpus=emulator_cpus if index == first else 0)
                    for index, share in enumerate(shares)
                )

    def _distributed(
        self, positions: tuple[int, ...], reserved: Sequence[Amounts]
    ) -> list[Amounts]:
        """Return what each cell gives: what is reserved, then the fullest as much as it can."""
        shares = [list(amounts) for amounts in reserved]
        if self._is_whole:
            self._give_whole_cores(positions, shares)
        for kind in _KINDS:
            missing = self._needs[kind] - sum(share[kind] for share in shares)
            for index in sorted(
                range(len(positions)), key=lambda i: (-self._room[positions[i]][kind], i)
            ):
                more = min(missing, self._room[positions[index]][kind] - shares[index][kind])
                shares[index][kind] += more
                missing -= more
        return [(vcpus, pinned, memory) for vcpus, pinned, memory in shares]

    def _give_whole_cores(self, positions: tuple[int, ...], shares: list[list[int]]) -> None:
        """Let cells give sums of whole cores that are as many CPUs as the guest pins, if any are.

        By the total so far, the amounts of the cells so far, the fullest first.
        """
        order = sorted(range(len(positions)), key=lambda i: (-self._room[positions[i]][1], i))
        totals: dict[int, tuple[int, ...]] = {0: ()}
        for index in order:
            most = self._room[positions[index]][1]
            amounts = [
                amount
                for amount in range(most, shares[index][1] - 1, -1)
                if self._rooms.has_pinned(positions[index], amount)
            ]
            totals = {
                total + amount: (*before, amount)
                for total, before in reversed(totals.items())
                for amount in reversed(amounts)
                if total + amount <= self._whole.pinned
            }
        for index, amount in zip(order, totals.get(self._whole.pinned, ()), strict=False):
            shares[index][1] = amount

    def _reservations(self, positions: tuple[int, ...]) -> Iterator[Sequence[Amounts]]:
        """Yield what cells give at the least: nothing; else each something, CPUs the fewest.

        More cells that must give pinned CPUs make it no easier to give as many as are needed.
        """
        yield [(0, 0, 0)] * len(positions)
        least = [self._least_pinned(position) for position in positions]
        free = [i for i, position in enumerate(positions) if self._slots([position]) is not None]
        fewest = max(len(free) - self._needs[0] - self._needs[2], 0)
        for number in range(fewest, len(free) + 1):
            is_possible = False
            for more in combinations(free, number):
                self._chooser.limit.take()
                others = [i for i in free if i not in more]
                kinds = self._slots([positions[i] for i in others])
                if kinds is None:
                    continue
                is_possible = True
                amounts = [(0, amount, 0) for amount in least]
                for i, kind in zip(others, kinds, strict=True):
                    amounts[i] = (1, 0, 0) if kind == 0 else (0, 0, 1)
                if sum(pinned for _vcpus, pinned, _memory in amounts) <= self._whole.pinned:
                    yield amounts
            if is_possible:
                return

    def _least_pinned(self, position: int) -> int:
        """Return the fewest CPUs that a cell can give; more than the guest pins: none."""
        most = self._room[position][1]
        amounts = (n for n in range(1, most + 1) if self._rooms.has_pinned(position, n))
        return next(amounts, self._whole.pinned + 1)

    def _slots(self, positions: Sequence[int]) -> list[int] | None:
        """Return the kind of which each cell can give one, floating CPUs or MiB; None: too few."""
        slots = [kind for kind in (0, 2) for _slot in range(min(self._needs[kind], len(positions)))]
        matching = Matching(
            [
                sum(1 << i for i, kind in enumerate(slots) if self._room[position][kind])
                for position in positions
            ]
        )
        return None if matching.complete() >= 0 else [slots[slot] for slot in matching.cell_of]

    def _spread(self, way: _Way, steps: int, *, is_best: bool) -> Spread:
        parts = tuple(map(self._rooms.part, way.positions, way.nodes))
        return Spread(parts, way.cost, is_best, steps)
