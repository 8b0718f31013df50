"""Whole numbers in texts that come from elsewhere: requests, options, command lines, metadata."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Final

MOST: Final = 2**31 - 1
"""The largest number that placement stores."""

_MOST_DIGITS: Final = 20
_SHOWN: Final = 40


def whole_number(text: str, most: int = MOST) -> int | None:
    """Return the number from 0 to `most` that the digits 0 to 9 spell, `None` for other texts."""
    digits = text.strip()
    # by length first: Python refuses to read very long numbers
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > _MOST_DIGITS:
        return None
    number = int(digits)
    return number if number <= most else None


def whole(least: int = 0, most: int = MOST, meaning: str = "whole number") -> Callable[[str], int]:
    """Return the type of an argument that is a number from `least` to `most`."""

    def read(text: str) -> int:
        number = whole_number(text, most)
        if number is None or number < least:
            shown_text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
            raise argparse.ArgumentTypeError(
                f"{shown_text!r} is not a {meaning} from {least} to {most}"
            )
        return number

    return read


positive: Final = whole(1)
port: Final = whole(0, 65535, "TCP port")
