"""The kernel's list format for CPUs and nodes: `0-3,8,10-11`, and the empty list."""

from __future__ import annotations

import re
from collections.abc import Iterable

_RANGE = re.compile(r"(\d+)(?:-(\d+)(?::(\d+)/(\d+))?)?")

LARGEST = 1 << 20
"""No kernel numbers CPUs so high; a larger number is a damaged file, not a machine."""


def parse(text: str) -> tuple[int, ...]:
    """Return the numbers of a list, ascending, each once.

    Also takes the form with strides, `0-31:2/8` (of every 8 the first 2).
    Source: Documentation/admin-guide/kernel-parameters.rst, "cpu lists".

    :raises ValueError: `text` is not such a list.
    """
    numbers: set[int] = set()
    for part in text.strip().split(","):
        if part.strip():
            numbers.update(_range(part.strip()))
    return tuple(sorted(numbers))


def write(numbers: Iterable[int]) -> str:
    """Write numbers as `0-3,8`."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def _range(part: str) -> list[int]:
    match = _RANGE.fullmatch(part)
    if match is None:
        raise ValueError(f"{part!r} is neither a number nor a range such as 0-3")
    first, last, used_count, group = (
        None if digits is None else int(digits) for digits in match.groups()
    )
    if first is None or (last is not None and last < first) or (last or first) > LARGEST:
        raise ValueError(f"{part!r} is not an ascending range of numbers up to {LARGEST}")
    numbers = list(range(first, (first if last is None else last) + 1))
    if used_count is None or not group:
        return numbers
    return [number for number in numbers if (number - first) % group < used_count]
