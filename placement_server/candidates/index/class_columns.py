"""The inventories of one resource class in arrays: growing ones, and a view of one state."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from placement_server.candidates.index.arrays import (
    UNIT_MAX,
    BoolArray,
    IntArray,
    Numbers,
    SlotArray,
)


class GrowableArray:
    """A one-dimensional array that grows at the end; views of it stay valid."""

    __slots__ = ("_array", "size")

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self._array: npt.NDArray[Any] = np.empty(64, dtype=dtype)
        self.size = 0

    @classmethod
    def after(cls, values: npt.NDArray[Any]) -> "GrowableArray":
        """Return an array that begins with these values, and copies them when it grows."""
        growable = cls.__new__(cls)
        growable._array = values
        growable.size = len(values)
        return growable

    def extend(self, values: Sequence[Any] | npt.NDArray[Any]) -> None:
        """Append values. Arrays handed out before keep their length and content."""
        if not len(values):
            return
        needed_size = self.size + len(values)
        if needed_size > len(self._array):
            grown_array = np.empty(max(needed_size, 2 * len(self._array)), dtype=self._array.dtype)
            grown_array[: self.size] = self._array[: self.size]
            self._array = grown_array
        self._array[self.size : needed_size] = values
        self.size = needed_size

    def view(self) -> npt.NDArray[Any]:
        """Return what has been appended so far."""
        return self._array[: self.size]


CLASS_FIELDS = (
    "slot", "fit", "min_unit", "max_unit", "step_size", "capacity", "shown_capacity", "used",
)  # fmt: skip


class ClassColumns:
    """All inventories of one resource class."""

    def __init__(self) -> None:
        self.slot = GrowableArray(np.int32)
        self.fit = GrowableArray(np.int32)
        self.min_unit = GrowableArray(np.int32)
        self.max_unit = GrowableArray(np.int32)
        self.step_size = GrowableArray(np.int32)
        self.capacity = GrowableArray(np.int64)
        self.shown_capacity = GrowableArray(np.float64)
        self.used = GrowableArray(np.int64)
        self.largest_min_unit = 1
        self.largest_step_size = 1

    @classmethod
    def after(cls, view: "ClassView") -> "ClassColumns":
        """Return columns that begin with the inventories of a view."""
        columns = cls()
        for name in CLASS_FIELDS:
            setattr(columns, name, GrowableArray.after(getattr(view, name)))
        columns.largest_min_unit = view.largest_min_unit
        columns.largest_step_size = view.largest_step_size
        return columns

    def append(
        self,
        slots: Numbers,
        min_unit: Numbers,
        max_unit: Numbers,
        step_size: Numbers,
        capacity: Numbers,
        shown_capacity: Sequence[float] | npt.NDArray[np.float64],
        used: Numbers,
    ) -> None:
        """Append inventories, by ascending slot.

        :param capacity: within the bound.
        """
        self.largest_min_unit = max(self.largest_min_unit, int(np.max(min_unit)))
        self.largest_step_size = max(self.largest_step_size, int(np.max(step_size)))
        numbers = (np.array(values, dtype=np.int64) for values in (capacity, max_unit, used))
        fit = largest_amounts(*numbers)
        columns = slots, fit, min_unit, max_unit, step_size, capacity, shown_capacity, used
        for name, values in zip(CLASS_FIELDS, columns, strict=True):
            getattr(self, name).extend(values)

    def compact(self, alive: BoolArray, new_slots: IntArray) -> "ClassColumns":
        """Return the inventories of living slots alone, under the new slots."""
        is_living = alive[self.slot.view()]
        fresh = ClassColumns()
        fresh.slot.extend(new_slots[self.slot.view()[is_living]])
        for name in CLASS_FIELDS[1:]:
            getattr(fresh, name).extend(getattr(self, name).view()[is_living])
        fresh.measure()
        return fresh

    def measure(self) -> None:
        """Find the largest units again."""
        self.largest_min_unit = int(self.min_unit.view().max(initial=1))
        self.largest_step_size = int(self.step_size.view().max(initial=1))

    def view(self) -> "ClassView":
        """Return the inventories appended so far."""
        arrays: dict[str, Any] = {name: getattr(self, name).view() for name in CLASS_FIELDS}
        return ClassView(
            **arrays,
            largest_min_unit=self.largest_min_unit,
            largest_step_size=self.largest_step_size,
        )


def largest_amounts(capacity: IntArray, max_unit: IntArray, used: IntArray) -> IntArray:
    """Return the largest amounts that may be asked for, -1 where there is overuse."""
    # np.clip takes four times as long for a few
    fit: IntArray = np.maximum(np.minimum(np.minimum(capacity - used, max_unit), UNIT_MAX), -1)
    return fit


class ClassView(Struct, frozen=True):
    """The inventories of one class in one state of the index, by ascending slot.

    :param fit: the largest amount that still fits: min(capacity - used, max_unit), clipped to
        32 bits; negative when over capacity.
    :param shown_capacity: capacity before truncation, as provider summaries show it.
    """

    slot: SlotArray
    fit: npt.NDArray[np.int32]
    min_unit: npt.NDArray[np.int32]
    max_unit: npt.NDArray[np.int32]
    step_size: npt.NDArray[np.int32]
    capacity: IntArray
    shown_capacity: npt.NDArray[np.float64]
    used: IntArray
    largest_min_unit: int
    largest_step_size: int

    def fits(self, amount: int) -> BoolArray:
        """Return for each inventory whether an amount fits."""
        if amount > UNIT_MAX:
            return np.zeros(len(self.slot), dtype=bool)
        fits: BoolArray = self.fit >= amount
        if self.largest_min_unit > 1:
            fits &= self.min_unit <= amount
        if self.largest_step_size > 1:
            fits &= amount % self.step_size == 0
        return fits

    def with_amounts(self, amounts: Mapping[int, int]) -> "ClassView":
        """Return the same inventories with another use of some, given by row."""
        used, fit = self.used.copy(), self.fit.copy()
        capacity, max_unit = self.capacity, self.max_unit
        for row, amount in amounts.items():
            used[row] = amount
            # as `largest_amounts`, which takes ten times as long for one
            fit[row] = max(min(capacity[row] - amount, max_unit[row], UNIT_MAX), -1)
        return replace(self, used=used, fit=fit)

    def with_use(self, used: IntArray) -> "ClassView":
        """Return the same inventories with another use."""
        fit = largest_amounts(self.capacity, self.max_unit.astype(np.int64), used)
        return replace(self, used=used, fit=fit.astype(np.int32))

    def by_slot(self, size: int, numbers: IntArray) -> IntArray:
        """Return a number of each inventory by slot, 0 for slots without one.

        :param size: the number of slots.
        """
        by_slot = np.zeros(size, np.int64)
        by_slot[self.slot] = numbers
        return by_slot

    def mask(self, size: int, inventories: BoolArray | None = None) -> BoolArray:
        """Return which slots have some of these inventories, dead ones included.

        :param size: the number of slots.
        :param inventories: which; all when None.
        """
        if inventories is not None and len(inventories) == size:
            # Every slot has one, as where all hosts are flat and alike.
            return inventories
        mask = np.zeros(size, dtype=bool)
        mask[self.slot] = True if inventories is None else inventories
        return mask
