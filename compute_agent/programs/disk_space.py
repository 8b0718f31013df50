"""Space and inodes of the disk that a directory is on."""

from __future__ import annotations

import os
from enum import IntEnum
from pathlib import Path
from typing import Final

_LEAST_BYTES: Final = 64 * 2**20
_LEAST_INODES: Final = 1000
"""Below these a disk is soon full: logs and caches grow by more in a day."""


class Space(IntEnum):
    """How much of a disk is free, as the severity of a check: 0 fine, 1 a warning, 2 an error."""

    ENOUGH = 0
    LITTLE = 1
    NONE = 2


def space_of(place: Path, what: str) -> tuple[Space, str]:
    """Return how much of the disk of a directory is free, also as a sentence.

    :param what: names the directory in the sentence.
    """
    numbers = os.statvfs(place)
    free_bytes = numbers.f_bavail * numbers.f_frsize
    # a file system without a table of inodes has 0 of them in all
    free_inodes = numbers.f_favail if numbers.f_files else None
    text = f"{what} has {free_bytes // 2**20} MiB free"
    text += "" if free_inodes is None else f" and {free_inodes} inodes"
    if not free_bytes or free_inodes == 0:
        return Space.NONE, f"{text}: nothing can be written. Free some"
    if free_bytes < _LEAST_BYTES or (free_inodes is not None and free_inodes < _LEAST_INODES):
        return Space.LITTLE, f"{text}: free some before it is full"
    return Space.ENOUGH, text
