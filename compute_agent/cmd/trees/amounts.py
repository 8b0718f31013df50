"""Amounts of resource classes as people read them: used of capacity, and their size in GiB."""

from __future__ import annotations

from typing import Final

_UNIT_BYTES: Final = {"_KB": 2**10, "_MB": 2**20, "_GB": 2**30}
"""Bytes of one unit of a class, by the end of its name."""

_SIZES: Final = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"))


def amount_text(
    resource_class: str, used: int, capacity: int, ratio: float = 1.0, *, in_bytes: bool = False
) -> str:
    """Return what is used of a capacity, as in `2048/8192 (2/8 GiB)`.

    :param ratio: the allocation ratio, which is shown unless it is 1.
    :param in_bytes: memory and disk in bytes alone, for scripts.
    """
    unit_bytes = _UNIT_BYTES.get(resource_class[-3:], 0)
    if in_bytes and unit_bytes:
        used, capacity = used * unit_bytes, capacity * unit_bytes
    notes = []
    largest = max(used, capacity) * unit_bytes
    size, unit = next((entry for entry in _SIZES if entry[0] <= largest), (0, ""))
    if size > unit_bytes and not in_bytes:
        notes.append(f"{_in(size, used * unit_bytes)}/{_in(size, capacity * unit_bytes)} {unit}")
    if ratio != 1:
        notes.append(f"ratio {ratio:g}")
    return f"{used}/{capacity}" + (f" ({', '.join(notes)})" if notes else "")


def _in(size: int, number: int) -> str:
    return f"{number / size:.1f}".removesuffix(".0")
