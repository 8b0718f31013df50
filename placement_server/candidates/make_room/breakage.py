"""Breakage: what a place spoils for guests that are hard to place, as far as the tree shows it."""

from __future__ import annotations

from functools import cached_property
from typing import Final

import numpy as np

from placement_server.candidates.index.arrays import IntArray
from placement_server.candidates.index.index import Index
from placement_server.candidates.make_room.places import Place
from placement_server.candidates.make_room.state import State

ORDINARY: Final = frozenset({"VCPU", "PCPU", "MEMORY_MB", "DISK_GB"})
"""What every guest takes; of any other class a provider is a device."""


class Breakage:
    """The judge of places, in the state that a plan has reached."""

    def __init__(self, index: Index, state: State) -> None:
        self._index, self._state = index, state
        names = index.names.class_names
        self._devices = {c for c in index.classes if names.get(c) not in ORDINARY}

    def of(self, place: Place) -> tuple[int, int]:
        """Return how many whole providers a place breaks, and kinds of devices that it blocks.

        A provider is broken of which nothing was used, and then only a part: a group of linked
        devices, a cell. Devices are blocked that are free on or below a provider of the place, and
        that the place does not take.
        """
        broken = sum(
            amount < self._whole[class_id][slot] == self._state.free[class_id][slot]
            for (slot, class_id), amount in place.amounts
        )
        taken = {class_id for (_slot, class_id), _amount in place.amounts}
        blocked = {
            (slot, class_id)
            for slot in {slot for (slot, _class_id), _amount in place.amounts}
            for class_id in self._devices - taken
            if self._free_below[class_id][self._index.end[slot]] > self._free_below[class_id][slot]
        }
        return int(broken), len(blocked)

    @cached_property
    def _whole(self) -> dict[int, IntArray]:
        whole = {}
        for class_id, view in self._index.classes.items():
            whole[class_id] = np.zeros(self._index.size, np.int64)
            whole[class_id][view.slot] = view.capacity
        return whole

    @cached_property
    def _free_below(self) -> dict[int, IntArray]:
        """By class, how many slots before each have some free, as at the beginning."""
        return {
            class_id: np.concatenate(([0], np.cumsum(self._state.base[class_id] > 0)))
            for class_id in self._devices
        }
