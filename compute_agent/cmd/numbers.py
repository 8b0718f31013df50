"""Whole numbers as arguments of commands."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Final

from compute_agent.whole_numbers import MOST, whole_number

_SHOWN: Final = 40


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
