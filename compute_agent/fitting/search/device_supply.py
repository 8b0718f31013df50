"""Supply of devices for the wishes of a guest: what is possible on which cells, at what price."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from compute_agent.fitting.guest import LEGACY, PREFERRED, SOCKET, Guest, Wish
from compute_agent.fitting.host import Cell, Device, Host
from compute_agent.fitting.search.coverage import EVERY, Demand, Supply
from compute_agent.fitting.search.matching import bits
from compute_agent.fitting.search.packing import Packing, StepLimit, WishKind, largest_sum


class GuestCells(Struct, frozen=True):
    """The cells of a guest, as bits.

    :param nodes: of each node; empty where nodes have none of their own.
    """

    mask: int
    nodes: tuple[int, ...] = ()

    def of(self, node: int | None) -> int:
        """Return the cells that count for a wish of that node."""
        return self.mask if node is None or node >= len(self.nodes) else self.nodes[node]


class Choice(NamedTuple):
    """A device for a kind of wish: the cells that allow it, those near it, how many it serves."""

    device: int
    enabling: int
    near: int
    distances: tuple[int, ...]
    served: int


class Prices(Struct, frozen=True):
    """What devices cost on certain cells.

    :param kinds: of each kind of wish the devices, the best first: whether it is far where it
        should be near, its distance from all cells, its number.
    :param far: the least for all wishes together, likewise `distance`.
    """

    kinds: list[list[tuple[bool, int, int]]]
    far: int
    distance: int


class DeviceSupply:
    """The devices of a host that may serve the wishes of a guest.

    :param limit: counts what it costs to prove that there are devices enough, or not.
    :ivar candidates: of each wish, the devices that may serve it on some cells.
    """

    def __init__(self, host: Host, guest: Guest, limit: StepLimit) -> None:
        cells, devices, wishes = host.cells, host.devices, guest.wishes
        self.devices = devices
        self.limit = limit
        self.wishes = wishes
        self._floats = guest.floats
        index: dict[int | None, int] = {cell.id: i for i, cell in enumerate(cells)}
        self._packages = [
            cell.package if any(wish.nearness == SOCKET for wish in wishes) else None
            for cell in cells
        ]
        self._near = [1 << index[d.cell] if d.cell in index else 0 for d in devices]
        self._socket = _sockets(cells, devices, index)
        self.candidates = [tuple(self._candidates(wish)) for wish in wishes]
        self._distances = {
            number: _distances_from(cells, devices[number].cell)
            for number in {device for candidates in self.candidates for device in candidates}
        }
        self.kinds = _kinds(wishes, self.candidates)
        self._choices = [
            [
                Choice(
                    device,
                    self._enabling(wishes[members[0]], device),
                    self._near[device],
                    self._distances[device],
                    devices[device].free // wishes[members[0]].amount,
                )
                for device in self.candidates[members[0]]
            ]
            for members in self.kinds
        ]
        self._served_kinds: list[tuple[tuple[int, int], ...]] = []
        self.weight = sum(map(len, self._choices))

    def _candidates(self, wish: Wish) -> Iterator[int]:
        for number, device in enumerate(self.devices):
            if device.free >= wish.amount and wish.may_be(device) and self._enabling(wish, number):
                yield number

    def _enabling(self, wish: Wish, device: int) -> int:
        """Return the cells of which the guest must have one; `EVERY`: it may be anywhere."""
        if (
            self._floats
            or wish.nearness in ("", PREFERRED)
            or (wish.nearness == LEGACY and self.devices[device].cell is None)
        ):
            return EVERY
        return self._socket[device] if wish.nearness == SOCKET else self._near[device]

    def distances(self, device: int) -> tuple[int, ...]:
        """Return the distances of a candidate from each cell; () = it is near no known one."""
        return self._distances[device]

    def likeness(self, position: int) -> tuple[int | None, tuple[tuple[int, int], ...]]:
        """Return what is equal for cells whose devices may change places.

        That is the socket, and of each device how much is free and which kinds of wishes it serves.
        """
        self._served_kinds = self._served_kinds or self._kinds_by_cell()
        return self._packages[position], self._served_kinds[position]

    def _kinds_by_cell(self) -> list[tuple[tuple[int, int], ...]]:
        kinds_of = [0] * len(self.devices)
        for number, members in enumerate(self.kinds):
            for device in self.candidates[members[0]]:
                kinds_of[device] |= 1 << number
        by_cell: list[list[tuple[int, int]]] = [[] for _ in self._packages]
        for device, mask in enumerate(kinds_of):
            for cell in bits(self._near[device] if mask else 0):
                by_cell[cell].append((mask, self.devices[device].free))
        return [tuple(sorted(own)) for own in by_cell]

    def is_allowed(self, wish: Wish, device: int, cells: GuestCells) -> bool:
        """Whether a candidate of a wish is as near as it must be."""
        enabling = self._enabling(wish, device)
        return enabling == EVERY or bool(cells.of(wish.node) & enabling)

    def prices(self, cells: GuestCells) -> Prices | None:
        """Return what each device costs on these cells; None: some wish has not enough of them."""
        kinds = []
        least_far = least_distance = 0
        positions = tuple(bits(cells.mask))
        for members, choices in zip(self.kinds, self._choices, strict=True):
            wish = self.wishes[members[0]]
            target = cells.of(wish.node)
            is_preferred = wish.nearness == PREFERRED and not self._floats
            prices, units = [], 0
            for device, enabling, near, distances, own in choices:
                if enabling != EVERY and not enabling & target:
                    continue
                distance = sum([distances[p] for p in positions]) if distances else 0
                prices.append((is_preferred and not target & near, distance, device))
                units += own
            if units < len(members):
                return None
            prices.sort()
            missing = len(members)
            for is_far, distance, device in prices:
                own = min(missing, self.devices[device].free // wish.amount)
                least_far += own * is_far
                least_distance += own * distance
                missing -= own
                if not missing:
                    break
            kinds.append(prices)
        return Prices(kinds, least_far, least_distance)

    def possible(self, cells: GuestCells) -> list[int] | None:
        """Return devices for all wishes, whichever; None is a proof that there are not enough."""
        packing, members = self._packing(cells)
        packing.pack()
        if packing.short:
            return None
        device_of = [-1] * len(self.wishes)
        for numbers, devices in zip(members, packing.devices, strict=True):
            for number, device in zip(numbers, devices, strict=True):
                device_of[number] = device
        return device_of

    def short_kinds(
        self, cells: GuestCells, numbers: Collection[int] | None = None
    ) -> frozenset[int]:
        """Return the kinds of wishes that compete for too few devices; empty: all can be served.

        :param numbers: the wishes that count; None: all.
        """
        packing, members = self._packing(cells, numbers)
        packing.pack()
        short = {number for own in packing.short for number in members[own]}
        return frozenset(n for n, own in enumerate(self.kinds) if not short.isdisjoint(own))

    def helpful(self, kinds: Iterable[int], taken: int) -> int:
        """Return the cells that make devices near enough for more wishes of the guest."""
        mask = 0
        for number in kinds:
            if self.wishes[self.kinds[number][0]].node is None:
                for choice in self._choices[number]:
                    if choice.enabling != EVERY and not choice.enabling & taken:
                        mask |= choice.enabling
        return mask

    def demands(self, kinds: Collection[int]) -> Iterator[Demand]:
        """Yield what kinds of wishes together need: units, and devices if amounts differ."""
        amounts = [self.wishes[self.kinds[number][0]].amount for number in kinds]
        yield self._demand(kinds, None)
        if len(set(amounts)) > 1:
            yield self._demand(kinds, min(amounts))

    def _demand(self, kinds: Collection[int], slot: int | None) -> Demand:
        """Return what kinds of wishes need together.

        :param slot: units that each wish has at the least; None: units are counted, not wishes.
        """
        total = 0
        own: dict[int, int] = {}
        near: dict[int, int] = {}
        near_of: dict[int, dict[int, int]] = {}
        amounts: dict[int, set[int]] = {}
        for number in kinds:
            wish = self.wishes[self.kinds[number][0]]
            needed = len(self.kinds[number]) * (1 if slot else wish.amount)
            total += needed
            if wish.node is not None:
                own[wish.node] = own.get(wish.node, 0) + needed
            for choice in self._choices[number]:
                device = choice.device
                amounts.setdefault(device, set()).add(wish.amount)
                if wish.node is None or choice.enabling == EVERY:
                    near[device] = near.get(device, 0) | choice.enabling
                else:
                    nodes = near_of.setdefault(device, {})
                    nodes[wish.node] = nodes.get(wish.node, 0) | choice.enabling
        supplies = []
        for device, sizes in amounts.items():
            free = self.devices[device].free
            units = free // slot if slot else largest_sum(free, frozenset(sizes))
            supplies.append(Supply(units, near.get(device, 0), near_of.get(device, {})))
        return Demand(total, tuple(supplies), own)

    def _packing(
        self, cells: GuestCells, numbers: Collection[int] | None = None
    ) -> tuple[Packing, list[list[int]]]:
        """Return which devices serve the wishes, and the wishes of each kind of the packing.

        :param numbers: the wishes that count; None: all.
        """
        kinds: dict[tuple[int, tuple[int, ...]], list[int]] = {}
        for members, choices in zip(self.kinds, self._choices, strict=True):
            wish = self.wishes[members[0]]
            own = [n for n in members if n in numbers] if numbers is not None else members
            if not own:
                continue
            target = cells.of(wish.node)
            devices = tuple(c.device for c in choices if c.enabling == EVERY or c.enabling & target)
            kinds.setdefault((wish.amount, devices), []).extend(own)
        packing = Packing(
            [WishKind(amount, len(own), devices) for (amount, devices), own in kinds.items()],
            [device.free for device in self.devices],
            self.limit,
        )
        return packing, list(kinds.values())


def _distances_from(cells: Sequence[Cell], near: int | None) -> tuple[int, ...]:
    if near is None:
        return ()
    return tuple([cell.distances.get(near) or cell.distance(near) for cell in cells])


def _kinds(wishes: Sequence[Wish], candidates: Sequence[tuple[int, ...]]) -> list[list[int]]:
    """Return the numbers of equal wishes together; those with the fewest devices first."""
    kinds: dict[Wish, list[int]] = {}
    for number, wish in enumerate(wishes):
        kinds.setdefault(replace(wish, name=""), []).append(number)
    return sorted(kinds.values(), key=lambda members: (len(candidates[members[0]]), members))


def _sockets(
    cells: Sequence[Cell], devices: Sequence[Device], index: Mapping[int | None, int]
) -> list[int]:
    """Return the cells of the socket of each device, as bits; 0 = unknown."""
    masks: dict[int, int] = {}
    for position, cell in enumerate(cells):
        if cell.package is not None:
            masks[cell.package] = masks.get(cell.package, 0) | 1 << position
    sockets = []
    for device in devices:
        position = index.get(device.cell, -1)
        package = cells[position].package if position >= 0 else None
        own = 1 << position if position >= 0 else 0
        sockets.append(own if package is None else masks[package])
    return sockets
