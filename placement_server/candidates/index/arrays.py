"""Types of the arrays that the index consists of, and the largest numbers in them."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
SlotArray = npt.NDArray[np.int32]
BoolArray = npt.NDArray[np.bool_]
Numbers = Sequence[int] | IntArray

UNIT_MAX = 2**31 - 1
CAPACITY_BOUND = 2**62


def has_any(mask: BoolArray) -> bool:
    """Check whether a mask selects something; its method `any` takes four times as long for few."""
    return len(mask) > 0 and bool(mask[mask.argmax()])
