"""Devices for the wishes of a guest whose cells are given: the best of those that are possible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from compute_agent.fitting.guest import Guest
from compute_agent.fitting.host import Device, Host
from compute_agent.fitting.plan import DeviceCost
from compute_agent.fitting.search.device_supply import DeviceSupply, GuestCells, Prices
from compute_agent.fitting.search.packing import StepLimit

_COMPARED: Final = 400
"""Choices of devices that are compared for one set of cells."""

NOTHING: Final = DeviceCost(0, 0, 0, 0, 0, ())
ON_NO_CELL: Final = GuestCells(0)


class DeviceChooser(DeviceSupply):
    """Chooses devices for one guest on one host.

    :ivar steps: choices looked at so far.
    :ivar is_exhaustive: False: better ones may have been left unseen.
    :ivar least_groups: link groups, beyond the first, over which equal devices are scattered in
        any case; likewise `least_roots`.
    """

    def __init__(self, host: Host, guest: Guest, limit: StepLimit, *, keep_links: bool) -> None:
        super().__init__(host, guest, limit)
        self.steps = 0
        self.is_exhaustive = True
        self._group_sizes = _whole_groups(self.devices) if keep_links else {}
        self.least_groups = sum(
            self._least(members, [d.link_group for d in self.devices]) for members in self.kinds
        )
        self.least_roots = sum(
            self._least(members, [d.pcie_root for d in self.devices]) for members in self.kinds
        )

    def _least(self, members: Sequence[int], names: Sequence[str]) -> int:
        """Return over how many groups, beyond the first, equal wishes are scattered at least."""
        if len(members) < 2:
            return 0
        units: dict[str, int] = {}
        count = self.wishes[members[0]].amount
        for device in self.candidates[members[0]]:
            own = self.devices[device].free // count
            name = names[device] or f" {device}"
            units[name] = units.get(name, 0) + own
        missing, number = len(members), 0
        for own in sorted(units.values(), reverse=True):
            if missing <= 0:
                break
            missing -= own
            number += 1
        return max(number - 1, 0)

    def best(self, cells: GuestCells, prices: Prices | None = None) -> DeviceCost | None:
        """Return the best devices on these cells; None: there are not enough.

        `is_exhaustive` becomes False where better ones may have been left unseen.

        :param prices: those of these cells, where they are known.
        """
        if not self.wishes:
            return NOTHING
        prices = prices or self.prices(cells)
        if prices is None:
            return None
        search = _Search(self, self.kinds, prices)
        search.run(0, 0, 0)
        self.steps += search.steps
        if search.steps < _COMPARED:
            return search.best
        self.is_exhaustive = False
        if search.best is None:
            possible = self.possible(cells)
            return None if possible is None else self._cost(possible, prices)
        return search.best

    def _cost(self, chosen: Sequence[int], prices: Prices) -> DeviceCost:
        far = distance = 0
        for members, of_kind in zip(self.kinds, prices.kinds, strict=True):
            price_of = {device: (is_far, length) for is_far, length, device in of_kind}
            for member in members:
                is_far, length = price_of[chosen[member]]
                far += is_far
                distance += length
        order = [number for members in self.kinds for number in members]
        groups, roots, broken = self.links([chosen[number] for number in order])
        return DeviceCost(far, distance, groups, roots, broken, tuple(chosen))

    def links(self, chosen: Sequence[int]) -> tuple[int, int, int]:
        """Return over how many link groups and PCIe roots equal devices are scattered.

        :param chosen: devices in the order of the kinds, perhaps only of the first wishes.
        :returns: both beyond the first of each kind; and the whole groups that are broken.
        """
        groups = roots = start = 0
        for members in self.kinds:
            own = set(chosen[start : start + len(members)])
            start += len(members)
            if len(own) > 1:
                groups += _number([self.devices[d].link_group for d in own]) - 1
                roots += _number([self.devices[d].pcie_root for d in own]) - 1
        broken = 0
        if self._group_sizes:
            taken: dict[str, set[int]] = {}
            for device in chosen:
                taken.setdefault(self.devices[device].link_group, set()).add(device)
            broken = sum(
                1 for group, own in taken.items() if 0 < len(own) < self._group_sizes.get(group, 0)
            )
        return groups, roots, broken


class _Search:
    """A search through the choices of devices, wish by wish, which leaves out what cannot win."""

    def __init__(
        self, chooser: DeviceChooser, kinds: Sequence[Sequence[int]], prices: Prices
    ) -> None:
        self._chooser = chooser
        self._order = [number for members in kinds for number in members]
        self._prices = [
            own for members, own in zip(kinds, prices.kinds, strict=True) for _member in members
        ]
        self._starts = {sum(map(len, kinds[:number])) for number in range(len(kinds))}
        self._left = [device.free for device in chooser.devices]
        self._chosen: list[int] = []
        self._ideal = (prices.far, prices.distance, chooser.least_groups, chooser.least_roots, 0)
        self._rest = [(0, 0)]
        for own in reversed(self._prices):
            far, distance = self._rest[-1]
            self._rest.append((far + own[0][0], distance + min(price[1] for price in own)))
        self._rest.reverse()
        self.best: DeviceCost | None = None
        self.steps = 0

    def run(self, index: int, far: int, distance: int) -> bool:
        """Continue with one wish; return False when nothing better can be left."""
        if index == len(self._order):
            return self._take(far, distance)
        count = self._chooser.wishes[self._order[index]].amount
        at_least = -1 if index in self._starts else self._chosen[-1]
        for own_far, own_distance, device in self._prices[index]:
            if self._left[device] < count or device < at_least:
                continue
            self.steps += 1
            if self.steps >= _COMPARED:
                return False
            self._chosen.append(device)
            goes_on = True
            if self.best is None or self._may_win(
                far + own_far + self._rest[index + 1][0],
                distance + own_distance + self._rest[index + 1][1],
            ):
                self._left[device] -= count
                goes_on = self.run(index + 1, far + own_far, distance + own_distance)
                self._left[device] += count
            self._chosen.pop()
            if not goes_on:
                return False
        return True

    def _may_win(self, far: int, distance: int) -> bool:
        best = self.best
        assert best is not None
        if (far, distance) != (best.far, best.distance):
            return (far, distance) < (best.far, best.distance)
        groups, roots, _broken = self._chooser.links(self._chosen)
        return (groups, roots, 0) <= (best.link_groups, best.pcie_roots, best.broken_links)

    def _take(self, far: int, distance: int) -> bool:
        key = (far, distance, *self._chooser.links(self._chosen))
        chosen = [-1] * len(self._order)
        for number, device in zip(self._order, self._chosen, strict=True):
            chosen[number] = device
        cost = DeviceCost(*key, tuple(chosen))
        if self.best is None or cost < self.best:
            self.best = cost
        return key > self._ideal


def _number(names: Sequence[str]) -> int:
    """Return the number of groups; a device without one is a group of its own."""
    named = {name for name in names if name}
    return len(named) + sum(not name for name in names)


def _whole_groups(devices: Sequence[Device]) -> dict[str, int]:
    """Return the number of devices of each link group of which nobody has anything."""
    groups: dict[str, list[Device]] = {}
    for device in devices:
        if device.link_group:
            groups.setdefault(device.link_group, []).append(device)
    return {
        name: len(members)
        for name, members in groups.items()
        if len(members) > 1 and not any(member.used or not member.free for member in members)
    }
