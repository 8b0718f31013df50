"""Whole numbers as arguments of commands."""

import argparse
from collections.abc import Callable
from typing import Final

MOST: Final = 2**31 - 1
_MOST_DIGITS: Final = 20
_SHOWN: Final = 40


def whole(least: int = 0, most: int = MOST, meaning: str = "whole number") -> Callable[[str], int]:
    """Return the type of an argument that is a number from `least` to `most`."""

    def read(text: str) -> int:
        digits = text.strip()
        # by length first: Python refuses to read very long numbers
        if digits.isascii() and digits.isdecimal() and len(digits) <= _MOST_DIGITS:
            number = int(digits)
            if least <= number <= most:
                return number
        shown_text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        raise argparse.ArgumentTypeError(
            f"{shown_text!r} is not a {meaning} from {least} to {most}"
        )

    return read


positive: Final = whole(1)
port: Final = whole(0, 65535, "TCP port")
