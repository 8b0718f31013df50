"""Garbage collection of a service whose objects either stay or are soon dropped."""

from __future__ import annotations

import gc
from typing import Final

YOUNG: Final = 50_000
"""New containers after which the young ones are walked: an answer about thousands of hosts."""


def keep_what_is_loaded() -> None:
    """Leave what is loaded now to the end of the process."""
    gc.collect()
    gc.freeze()


def expect_large_answers() -> None:
    """Look at new objects less often.

    An answer about candidates is hundreds of thousands of objects, none of them in a cycle. With
    Python's defaults a quarter of the time of such a request went into walking them again and
    again, together with all modules. A process that has small answers only takes hours to make so
    many: what is in cycles stays until `free_cycles`.
    """
    gc.set_threshold(YOUNG)


def free_cycles() -> None:
    """Free what is in cycles; it takes milliseconds where what is loaded is kept."""
    gc.collect()
