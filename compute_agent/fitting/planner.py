"""Plan of what a guest gets of a host, or the reason why it gets nothing.

Nodes are matched with cells; orders of nodes are never enumerated to prove that there is no way.
A search that leaves out what cannot be better compares plans until its budget of steps ends; if it
has found none by then, `feasible` finds one or proves that there is none.
"""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from compute_agent.fitting import refusals
from compute_agent.fitting.guest import Guest, Node
from compute_agent.fitting.host import DEFAULT_OPTIONS, ORDINARY, Host, PlanOptions
from compute_agent.fitting.plan import UNDECIDED, UNNAMED, Cost, Grant, Part, Plan, Refusal
from compute_agent.fitting.room import Rooms, network_cells
from compute_agent.fitting.search import feasible
from compute_agent.fitting.search.device_supply import GuestCells
from compute_agent.fitting.search.devices import ON_NO_CELL, DeviceChooser
from compute_agent.fitting.search.host_memory import host_memory
from compute_agent.fitting.search.matching import Matching
from compute_agent.fitting.search.node_search import NodeSearch
from compute_agent.fitting.search.packing import StepLimit, StepsExceeded
from compute_agent.fitting.search.spreading import Spreading


def plan(host: Host, guest: Guest, options: PlanOptions = DEFAULT_OPTIONS) -> Plan | Refusal:
    """Return the best of what a guest can get of a host, or why it can get nothing.

    The same arguments give the same answer. A proof ends at the limit of steps: it would hold up
    the other guests of the host.
    """
    planning = _Planning(host, guest, options, StepLimit(options.limit))
    try:
        return planning.best() or planning.refusal()
    except StepsExceeded:
        return Refusal(UNDECIDED, None, "", {}, steps=options.limit)


class _Planning:
    """One question to the planner."""

    def __init__(
        self,
        host: Host,
        guest: Guest,
        options: PlanOptions,
        limit: StepLimit,
        rooms: Rooms | None = None,
    ) -> None:
        self._host = host
        self._guest = guest
        self._options = options
        self._limit = limit
        self._rooms = Rooms(host, guest, options, rooms)
        self._chooser = DeviceChooser(host, guest, limit, keep_links=options.keep_links)

    def best(self) -> Plan | None:
        """Return the best plan; None: it is proved that there is none.

        :raises StepsExceeded: the steps that are left do not decide it.
        """
        nodes, limit = self._guest.nodes, self._host.memory_mib
        ordinary_mib = sum(node.memory_mib for node in nodes if node.page_sizes == {ORDINARY})
        if not all(self._chooser.candidates) or (limit is not None and ordinary_mib > limit):
            return None
        if self._guest.floats:
            devices = self._chooser.best(ON_NO_CELL)
            return None if devices is None else self._plan((), Cost(**devices._asdict()), 0)
        found = self._on_cells(nodes)
        if found is None and not self._guest.names_nodes:
            spreading = Spreading(self._host, self._guest, self._rooms, self._chooser)
            spread = spreading.best(self._options.budget)
            if spread is not None:
                found = self._plan(spread.parts, spread.cost, spread.steps, is_best=spread.is_best)
        return found

    def refusal(self) -> Refusal:
        """Return why there is no plan, as far as the steps that are left find it."""
        reasons = refusals.Reasons(
            self._host, self._guest, self._rooms, self._chooser, self._has_room_for
        )
        try:
            refusal = reasons.first()
        except StepsExceeded:
            return Refusal(UNNAMED, None, "", {}, steps=self._options.limit)
        return replace(refusal, steps=self._limit.taken)

    def _has_room_for(self, guest: Guest) -> bool:
        """Whether another guest would fit, found out within the same limit of steps."""
        options = replace(self._options, budget=0)
        return _Planning(self._host, guest, options, self._limit, self._rooms).best() is not None

    def _allowed(self, nodes: tuple[Node, ...]) -> list[int]:
        """Return the cells that have room for each node, as bits."""
        masks: dict[Node, int] = {}
        cells = self._host.cells
        allowed = []
        for node in nodes:
            mask = masks.get(node)
            if mask is None:
                mask = 0
                for position, cell in enumerate(cells):
                    if (node.cell is None or node.cell == cell.id) and not self._rooms.lacks(
                        position, node
                    ):
                        mask |= 1 << position
                masks[node] = mask
            allowed.append(mask)
        return feasible.with_devices(allowed, self._chooser)

    def _on_cells(self, nodes: tuple[Node, ...]) -> Plan | None:
        """Return the best plan with each node on a cell of its own."""
        allowed = self._allowed(nodes)
        if Matching(allowed).complete() >= 0:
            return None
        memory = host_memory(self._rooms, nodes, self._host.memory_mib, self._limit)
        if memory is not None and memory.covering(allowed, 0) is None:
            return None
        search = NodeSearch(
            self._host, self._guest, nodes, self._rooms, self._chooser, allowed, memory
        )
        search.run(self._options.budget)
        cells, cost = search.cells, search.best
        if cost is None and search.is_exhaustive:
            return None
        if cost is None:
            networks = network_cells(self._host.cells, self._guest)
            way = feasible.way(allowed, networks, self._chooser, memory)
            if way is None:
                return None
            cells = way
            own = tuple(1 << cell for cell in cells)
            chosen = self._chooser.best(GuestCells(sum(own), own))
            assert chosen is not None
            cost = self._rooms.cost_of_way(cells, nodes, chosen)
        parts = tuple(self._rooms.part(cell, node) for cell, node in zip(cells, nodes, strict=True))
        return self._plan(parts, cost, search.steps, is_best=search.is_exhaustive)

    def _plan(
        self, parts: tuple[Part, ...], cost: Cost, steps: int, *, is_best: bool = True
    ) -> Plan:
        taken: Counter[int] = Counter()
        given = []
        for wish, number in zip(self._guest.wishes, cost.devices, strict=True):
            device, first = self._host.devices[number], taken[number]
            taken[number] += wish.amount
            units = device.units[first : first + wish.amount]
            given.append(Grant(wish.name, device.id, wish.resource_class, wish.amount, units))
        return Plan(
            parts,
            tuple(given),
            cost,
            is_best and self._chooser.is_exhaustive,
            steps + self._chooser.steps + self._limit.taken,
        )
