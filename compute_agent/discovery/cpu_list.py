"""The kernel's list format for CPUs and nodes: `0-3,8,10-11`, and the empty list."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+)(?::([0-9]+)/([0-9]+))?)?")

LARGEST = 1 << 20
"""No kernel numbers CPUs so high; a larger number is a damaged file, not a machine."""


def parse(text: str) -> tuple[int, ...]:
    """Return the numbers of a list, ascending, each once.

    Also takes the form with strides, `0-31:2/8` (of every 8 the first 2).
    Source: Documentation/admin-guide/kernel-parameters.rst, "cpu lists".

    :raises ValueError: `text` is not such a list.
    """
    numbers: set[int] = set()
    for numbers_of_part in _ranges(text):
        numbers.update(numbers_of_part)
    return tuple(sorted(numbers))


def mask(text: str) -> int:
    """Return the numbers of a list as the bits of one number; raises as `parse`."""
    bits = 0
    for part in _ranges(text):
        bits |= ((1 << len(part)) - 1) << part.start
    return bits


def write(numbers: Iterable[int]) -> str:
    """Write numbers as `0-3,8`."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def _ranges(text: str) -> Iterator[range]:
    for part in text.strip().split(","):
        if part.strip():
            yield from _part(part.strip())


def _part(part: str) -> Iterator[range]:
    match = _RANGE.fullmatch(part)
    if match is None:
        raise ValueError(f"{part!r} is neither a number nor a range such as 0-3")
    first, last, used_count, group = map(int, match.groups(default="-1"))
    last = first if last < 0 else last
    if not first <= last <= LARGEST:
        raise ValueError(f"{part!r} is not an ascending range of numbers up to {LARGEST}")
    if group <= 0:
        yield range(first, last + 1)
        return
    for start in range(first, last + 1, group):
        yield range(start, min(start + used_count, last + 1))
