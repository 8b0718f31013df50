"""Whole numbers in texts that come from elsewhere: requests, options, command lines, metadata."""

from __future__ import annotations

from typing import Final

MOST: Final = 2**31 - 1
"""The largest number that placement stores."""

_MOST_DIGITS: Final = 20


def whole_number(text: str, most: int = MOST) -> int | None:
    """Return the number from 0 to `most` that the digits 0 to 9 spell, `None` for other texts."""
    stripped_text = text.strip()
    if (
        not (stripped_text.isascii() and stripped_text.isdecimal())
        or len(stripped_text) > _MOST_DIGITS
    ):
        return None
    number = int(stripped_text)
    return number if number <= most else None
