"""The loading of many modules at once, and of those of a command that is chosen."""

from __future__ import annotations

import contextlib
import gc
import pkgutil
import sys
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Load modules without garbage collections, and leave what is loaded out of later ones.

    They would look through all modules, again and again, and find next to nothing.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


def load(place: str) -> Any:
    """Return what is at a place, `package.module:name`, and load its module if nobody has yet."""
    if place.partition(":")[0] in sys.modules:
        return pkgutil.resolve_name(place)
    with without_collections():
        return pkgutil.resolve_name(place)
