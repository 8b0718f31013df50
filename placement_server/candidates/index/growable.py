"""Arrays that grow while they are read."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


class Growable:
    """A one-dimensional array that grows at the end; views of it stay valid."""

    __slots__ = ("_array", "size")

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self._array: npt.NDArray[Any] = np.empty(64, dtype=dtype)
        self.size = 0

    @classmethod
    def after(cls, values: npt.NDArray[Any]) -> "Growable":
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
