"""The arithmetic of one inventory."""

from __future__ import annotations

import math
from typing import Final

_MAX_BIGINT: Final = 2**63 - 1


def usable(total: int, reserved: int, allocation_ratio: float) -> int:
    """Return the largest whole use that does not exceed `(total - reserved) * allocation_ratio`.

    Uses are whole numbers, so `use <= usable(...)` is the same test as `use` against the
    fractional product; it can be made in SQL without rounding.
    """
    exact = (total - reserved) * allocation_ratio
    if exact >= _MAX_BIGINT:
        return _MAX_BIGINT
    if exact <= -_MAX_BIGINT:
        return -_MAX_BIGINT
    return math.floor(exact)


def reserved_is_valid(
    total: int, reserved: int, allocation_ratio: float, *, may_equal_total: bool
) -> bool:
    """Return whether an inventory leaves enough after what is reserved.

    The whole part of the capacity is what counts, cut towards zero: it must be positive, or not
    negative where `reserved` may equal `total` (microversion 1.26 and newer).
    """
    exact = (total - reserved) * allocation_ratio
    return exact > -1 if may_equal_total else exact >= 1


def single_precision(ratio: float) -> float:
    """Return the allocation ratio as MySQL's FLOAT column returns it: six significant digits."""
    return float(f"{ratio:.6g}")
