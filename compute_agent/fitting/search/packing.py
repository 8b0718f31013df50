"""Packing of wishes for units on devices: a proof that all have enough, or that they do not.

Wishes for one amount are a flow from kinds of wishes to devices, which is decided at once. Of
several amounts the larger are put on devices one by one; what cannot be, by the mere number of
slots of each amount and of units, is seen before it is tried. Equal devices are tried once, failed
states are remembered, and kinds that share no devices are decided apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from msgspec import Struct

_SUMMED: Final = 64
"""Units up to which it is looked at how many of them whole wishes can be."""


class StepsExceeded(Exception):
    """More steps than are allowed would be needed to decide whether a guest fits."""


class StepLimit(Struct, eq=False):
    """Steps of one plan, counted up to a limit.

    :ivar taken: so far.
    """

    limit: int
    taken: int = 0

    def take(self) -> None:
        """Count a step.

        :raises StepsExceeded: it is one too many.
        """
        self.taken += 1
        if self.taken > self.limit:
            raise StepsExceeded


@lru_cache(maxsize=4096)
def largest_sum(units: int, amounts: frozenset[int]) -> int:
    """Return the largest sum of amounts that is not above `units`."""
    if 1 in amounts or units > _SUMMED:
        return units
    return max((a + largest_sum(units - a, amounts) for a in amounts if a <= units), default=0)


class WishKind(Struct, frozen=True):
    """Equal wishes.

    :param amount: units of each, which one device must give.
    :param number: how many.
    :param devices: those that may serve them.
    """

    amount: int
    number: int
    devices: tuple[int, ...]


class Packing:
    """A packing of wishes on devices.

    :ivar devices: of each kind, those of its wishes, ascending; empty where there is no way.
    :ivar short: the kinds that compete for too few devices; empty where there is a way.
    """

    def __init__(self, kinds: Sequence[WishKind], free: Sequence[int], limit: StepLimit) -> None:
        self._kinds = kinds
        self._limit = limit
        self._free = free
        self._users: dict[int, int] = {}
        for number, kind in enumerate(kinds):
            for device in kind.devices:
                self._users[device] = self._users.get(device, 0) | 1 << number
        self._dead: set[object] = set()
        self.devices: list[list[int]] = [[] for _ in kinds]
        self.short: list[int] = []

    def pack(self) -> None:
        """Find devices for all wishes, or kinds that have too few."""
        for own in self._components():
            counts = [kind.number if n in own else 0 for n, kind in enumerate(self._kinds)]
            self.short = self._pack(counts, list(self._free))
            if self.short:
                self.devices = []
                return
        for devices in self.devices:
            devices.sort()

    def _components(self) -> list[set[int]]:
        """Return the kinds that share devices, directly or by others, together."""
        components: list[tuple[set[int], set[int]]] = []
        for number, kind in enumerate(self._kinds):
            own, devices = {number}, set(kind.devices)
            apart = []
            for component in components:
                if devices.isdisjoint(component[1]):
                    apart.append(component)
                else:
                    own |= component[0]
                    devices |= component[1]
            components = [*apart, (own, devices)]
        return [own for own, _devices in components]

    def _pack(self, counts: list[int], left: list[int]) -> list[int]:
        """Add devices for the wishes that are left; return the kinds that have too few."""
        kinds = self._kinds
        open_kinds = [number for number, count in enumerate(counts) if count]
        amounts = sorted({kinds[number].amount for number in open_kinds})
        for amount in amounts:
            own = [number for number in open_kinds if kinds[number].amount >= amount]
            slots = [units // amount for units in left]
            flow, short = self._flow(own, [counts[number] for number in own], left, slots)
            if short:
                return short
            if len(amounts) == 1:
                for number, units in zip(own, flow, strict=True):
                    for device, served in units.items():
                        self.devices[number] += [device] * served
        if len(amounts) < 2:
            return []
        units_wanted = [counts[number] * kinds[number].amount for number in open_kinds]
        _flow, short = self._flow(
            open_kinds, units_wanted, left, self._usable_units(open_kinds, left)
        )
        if short:
            return short
        state = self._state(counts, left, open_kinds, amounts[0])
        if state in self._dead:
            return open_kinds
        number = min(
            (n for n in open_kinds if kinds[n].amount == amounts[-1]),
            key=lambda n: (sum(left[d] >= amounts[-1] for d in kinds[n].devices), n),
        )
        counts[number] -= 1
        tried = set()
        amount, mask = kinds[number].amount, sum(1 << n for n in open_kinds)
        for device in sorted(kinds[number].devices, key=lambda d: (left[d], d)):
            likeness = left[device], self._users[device] & mask
            if left[device] < amount or likeness in tried:
                continue
            tried.add(likeness)
            left[device] -= amount
            short = self._pack(counts, left)
            left[device] += amount
            if not short:
                self.devices[number].append(device)
                counts[number] += 1
                return []
        counts[number] += 1
        self._dead.add(state)
        return open_kinds

    def _usable_units(self, open_kinds: Sequence[int], left: Sequence[int]) -> list[int]:
        """Return of each device the most units that whole wishes can be."""
        amounts_of: dict[int, set[int]] = {}
        for number in open_kinds:
            for device in self._kinds[number].devices:
                amounts_of.setdefault(device, set()).add(self._kinds[number].amount)
        return [
            largest_sum(left[device], frozenset(amounts_of.get(device, ())))
            for device in range(len(left))
        ]

    def _state(
        self, counts: list[int], left: list[int], open_kinds: Sequence[int], least: int
    ) -> object:
        """Return what decides whether the rest can be packed."""
        mask = sum(1 << number for number in open_kinds)
        devices = sorted(
            (users & mask, left[device])
            for device, users in self._users.items()
            if users & mask and left[device] >= least
        )
        return tuple(counts), tuple(devices)

    def _flow(
        self,
        own: Sequence[int],
        wanted: Sequence[int],
        left: Sequence[int],
        capacity: Sequence[int],
    ) -> tuple[list[dict[int, int]], list[int]]:
        """Return how much each device gives to each kind; else the kinds that lack some.

        :param left: free units of the devices; one with fewer than a wish needs gives nothing.
        """
        self._limit.take()
        devices_of = [
            [d for d in self._kinds[number].devices if left[d] >= self._kinds[number].amount]
            for number in own
        ]
        given: list[dict[int, int]] = [{} for _ in own]
        users: dict[int, set[int]] = {}
        room = list(capacity)
        for start, missing in enumerate(wanted):
            while missing:
                via: dict[int, int] = {}
                moved_from: dict[int, int] = {start: -1}
                queue, end = [start], -1
                for kind in queue:
                    for device in devices_of[kind]:
                        if device in via:
                            continue
                        via[device] = kind
                        if room[device]:
                            end = device
                            break
                        for other in users.get(device, ()):
                            if other not in moved_from and given[other].get(device):
                                moved_from[other] = device
                                queue.append(other)
                    if end >= 0:
                        break
                if end < 0:
                    return [], [own[kind] for kind in queue]
                path = [(via[end], end)]
                while path[-1][0] != start:
                    device = moved_from[path[-1][0]]
                    path.append((via[device], device))
                more = min(
                    missing,
                    room[end],
                    *(given[kind][moved_from[kind]] for kind, _device in path[:-1]),
                )
                room[end] -= more
                missing -= more
                for kind, device in path:
                    given[kind][device] = given[kind].get(device, 0) + more
                    users.setdefault(device, set()).add(kind)
                    if kind != start:
                        given[kind][moved_from[kind]] -= more
        return given, []
