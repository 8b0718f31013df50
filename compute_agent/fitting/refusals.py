"""Reasons why a guest does not fit: the first rule that cannot be kept, and what is nearest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from compute_agent.fitting.guest import ISOLATE, PREFERRED, REQUIRE, Guest, Node, Wish
from compute_agent.fitting.host import ORDINARY, Cell, Host
from compute_agent.fitting.plan import (
    CELLS,
    CPUS,
    DEVICES,
    MEMORY,
    NEARNESS,
    NETWORKS,
    PAGES,
    PINNED,
    THREADS,
    TOGETHER,
    Refusal,
)
from compute_agent.fitting.room import Rooms, network_cells
from compute_agent.fitting.search.device_supply import GuestCells
from compute_agent.fitting.search.devices import DeviceChooser
from compute_agent.fitting.search.host_memory import host_memory
from compute_agent.fitting.search.matching import Matching, bits

_SHOWN_CELLS: Final = 16
_ALONE: Final[Mapping[str, Sequence[str]]] = {
    CPUS: ("vcpus",),
    PINNED: ("pinned", "emulator_cpus"),
    THREADS: ("pinned",),
    MEMORY: ("memory_mib", "page_sizes", "names_pages"),
}
"""What of a node each rule is about by itself."""


class Reasons(Struct, eq=False):
    """The rules, one after the other, for a guest that does not fit on a host.

    :param fits: whether a guest that needs less does.
    """

    host: Host
    guest: Guest
    rooms: Rooms
    chooser: DeviceChooser
    fits: Callable[[Guest], bool]

    def first(self) -> Refusal:
        """Return the first rule that cannot be kept."""
        return self._of_devices() or self._of_memory() or self._of_cells()

    def _of_devices(self) -> Refusal | None:
        """Return the wish that no device of the host can serve, however near or far."""
        short = self.chooser.short_kinds(self._everywhere())
        return self._of_wish(DEVICES, self._wish_of(short), None) if short else None

    def _of_memory(self) -> Refusal | None:
        """Return that the ordinary memory of all cells together is too little."""
        limit = self.host.memory_mib
        wanted = sum(n.memory_mib for n in self.guest.nodes if n.page_sizes == {ORDINARY})
        if limit is None or wanted <= limit:
            return None
        return self._of_host_memory(wanted, limit)

    def _of_host_memory(self, wanted: int, limit: int) -> Refusal:
        free = {cell.id: f"{max(cell.memory_mib, 0)} MiB" for cell in self.host.cells}
        return Refusal(
            MEMORY,
            None,
            f"{wanted} MiB of ordinary memory, of which {max(limit, 0)} MiB are left on the host",
            free,
            f"the host: {wanted - max(limit, 0)} MiB",
        )

    def _of_cells(self) -> Refusal:
        """Return which node has no cell, or what keeps them from being together."""
        if not self.guest.names_nodes:
            return self._of_whole(self.guest.nodes[0])
        nodes, cells = self.guest.nodes, self.host.cells
        allowed = []
        for number, node in enumerate(nodes):
            own = [(i, c) for i, c in enumerate(cells) if node.cell in (None, c.id)]
            lacks = {c.id: self.rooms.lacks(i, node) for i, c in own}
            mask = sum(1 << i for i, c in own if not lacks[c.id])
            if not mask:
                return self._of_node(number, node, lacks)
            allowed.append(mask)
        matching = Matching(allowed)
        unmatched = matching.complete()
        if unmatched >= 0:
            competing, near = matching.reachable(unmatched)
            names = ", ".join(map(str, sorted(competing)))
            return Refusal(
                CELLS,
                unmatched,
                f"a cell of its own, as nodes {names} do, which fit on "
                f"{near.bit_count()} cell(s) only",
                {cells[i].id: self._text(cells[i], nodes[unmatched]) for i in bits(near)},
            )
        every = 0
        for mask in allowed:
            every |= mask
        refusal = self._of_surroundings(GuestCells(every, tuple(allowed)))
        if refusal is not None:
            return refusal
        memory = host_memory(self.rooms, nodes, self.host.memory_mib, self.chooser.limit)
        assert memory is not None, "nothing else is left"
        return self._of_host_memory(memory.of(memory.least(allowed)), memory.limit)

    def _everywhere(self) -> GuestCells:
        return GuestCells((1 << len(self.host.cells)) - 1)

    def _wish_of(self, kinds: Iterable[int]) -> Wish:
        return self.guest.wishes[self.chooser.kinds[min(kinds)][0]]

    def _of_surroundings(self, cells: GuestCells) -> Refusal | None:
        """Return that networks, or else devices, keep the guest off; None: neither do.

        :param cells: those that have room for it.
        """
        elsewhere = replace(self.guest, physnets=frozenset(), needs_tunnel=False)
        if network_cells(self.host.cells, self.guest) and self.fits(elsewhere):
            return self._of_networks()
        if self.guest.wishes and self.fits(replace(elsewhere, wishes=())):
            return self._of_nearness(cells)
        return None

    def _of_networks(self) -> Refusal:
        cells = self.host.cells
        return Refusal(
            NETWORKS,
            None,
            "cells near its networks ([neutron]physnets), of which it needs one for each",
            {
                cell.id: f"near {', '.join(sorted(cell.physnets)) or 'no network'}"
                + (" and the tunnels" if cell.tunneled else "")
                for cell in islice(cells, _SHOWN_CELLS)
            },
        )

    def _of_nearness(self, cells: GuestCells) -> Refusal:
        near = [
            number
            for number, own in enumerate(self.chooser.kinds)
            if self.guest.wishes[own[0]].nearness not in ("", PREFERRED)
        ]
        short = self.chooser.short_kinds(cells)
        wish = self._wish_of(short.intersection(near) or near)
        return self._of_wish(NEARNESS, wish, wish.node)

    def _of_wish(self, rule: str, wish: Wish, node: int | None) -> Refusal:
        free: dict[int, int] = {}
        elsewhere = 0
        for device in self.host.devices:
            if not wish.may_be(device):
                continue
            if device.cell is None:
                elsewhere += device.free
            else:
                free[device.cell] = free.get(device.cell, 0) + device.free
        number = sum(w.amount for w in self.guest.wishes if w.resource_class == wish.resource_class)
        near = f" near its cells (policy {wish.nearness})" if wish.nearness else ""
        more = f" ({elsewhere} are free on no known cell)" if elsewhere else ""
        return Refusal(
            rule,
            node,
            f"{number} {wish.resource_class}{near}{more}",
            {cell: f"{amount} {wish.resource_class}" for cell, amount in free.items()},
        )

    def _of_whole(self, whole: Node) -> Refusal:
        """Return what all cells together have too little of."""
        cells = self.host.cells
        for rule in _ALONE:
            amounts = [self._amounts(rule, whole, position) for position in range(len(cells))]
            missing = max((wanted for wanted, _free in amounts), default=0)
            missing -= sum(free for _wanted, free in amounts)
            if missing > 0:
                miss = f"all cells together: {missing} {_UNITS[rule]}"
                return Refusal(rule, None, self._wanted(whole), self._texts(whole), miss)
        return self._of_surroundings(self._everywhere()) or Refusal(
            TOGETHER, None, self._wanted(whole), self._texts(whole)
        )

    def _of_node(self, number: int, node: Node, lacks: Mapping[int, str]) -> Refusal:
        rules = set(lacks.values())
        rule = next(iter(rules)) if len(rules) == 1 else TOGETHER
        own = [i for i, cell in enumerate(self.host.cells) if cell.id in lacks]
        # by itself too, the memory of a node with pinned CPUs is not overcommitted
        whole = replace(node, names_pages=node.names_pages or node.pinned > 0)
        for names in _ALONE.values():
            alone = Node(**{name: getattr(whole, name) for name in names})
            reasons = [self.rooms.lacks(position, alone) for position in own]
            if reasons and all(reasons):
                rule = THREADS if THREADS in reasons else reasons[-1]
                break
        miss = ""
        if rule != TOGETHER and own:
            amounts = [(self._amounts(rule, node, i), self.host.cells[i].id) for i in own]
            missing, cell = min((wanted - free, cell) for (wanted, free), cell in amounts)
            miss = f"cell {cell}: {missing} {_UNITS[rule]}" if missing > 0 else ""
        return Refusal(
            rule, number, f"{self._wanted(node)} on one cell", self._texts(node, lacks), miss
        )

    def _amounts(self, rule: str, node: Node, position: int) -> tuple[int, int]:
        """Return what a node wants of what a rule is about, and what a cell has of it."""
        cell = self.host.cells[position]
        if rule == CPUS:
            return node.vcpus, cell.shareable
        if rule == PINNED:
            return node.pinned + node.emulator_cpus, max(cell.pinnable, 0)
        if rule == THREADS:
            return node.pinned, max(self.rooms.pinnable(position), 0)
        if rule == PAGES:
            return node.memory_mib, max(cell.pages_mib.get(size, 0) for size in node.page_sizes)
        return node.memory_mib, max(self.rooms.memory(position, node), 0)

    def _wanted(self, node: Node) -> str:
        sizes = sorted(node.page_sizes - {ORDINARY})
        pages = f" in pages of {' or '.join(map(str, sizes))} KiB" if sizes else ""
        policy = self.guest.threads
        threads = {REQUIRE: " of whole cores", ISOLATE: " of cores without siblings"}.get(
            policy, ""
        )
        emulator = f" and {node.emulator_cpus} for the emulator" if node.emulator_cpus else ""
        return (
            f"{node.vcpus} shared and {node.pinned} pinned CPUs{threads if node.pinned else ''}"
            f"{emulator} with {node.memory_mib} MiB{pages}"
        )

    def _texts(self, node: Node, shown: Mapping[int, str] | None = None) -> dict[int, str]:
        return {
            cell.id: self._text(cell, node)
            for cell in islice(self.host.cells, _SHOWN_CELLS)
            if shown is None or cell.id in shown
        }

    def _text(self, cell: Cell, node: Node) -> str:
        parts = []
        if node.vcpus:
            on = "" if cell.floating is None else f" on {cell.floating}"
            parts.append(f"{max(cell.vcpus, 0)} shared CPUs{on}")
        if node.pinned or node.emulator_cpus:
            position = self.host.cells.index(cell)
            most = self.rooms.pinnable(position)
            whole = f", {most} of them as wanted" if most < cell.pinnable else ""
            parts.append(f"{max(cell.pinnable, 0)} CPUs to pin{whole}")
        sizes = sorted(node.page_sizes - {ORDINARY})
        if ORDINARY in node.page_sizes:
            position = self.host.cells.index(cell)
            memory = self.rooms.memory(position, node)
            parts.append(f"{max(memory, 0)} MiB")
        parts += [f"{cell.pages_mib.get(size, 0)} MiB in pages of {size} KiB" for size in sizes]
        return ", ".join(parts)


_UNITS: Final = {
    CPUS: "shared CPUs",
    PINNED: "CPUs to pin",
    THREADS: "CPUs",
    MEMORY: "MiB",
    PAGES: "MiB",
}
