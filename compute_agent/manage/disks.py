"""Space and inodes of the directories that the programs of a host write to."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from compute_agent.manage.diagnosis import Diagnosis, Level

if TYPE_CHECKING:
    from oslo_config import cfg

_LEAST_BYTES: Final = 64 * 2**20
_LEAST_INODES: Final = 1000
"""Below these a disk is soon full: logs and caches grow by more in a day."""


def examine_disks(conf: cfg.ConfigOpts) -> Iterator[Diagnosis]:
    """Check the state directory, the scheduler's journal, the log and temporary files."""
    uses = [
        (conf.state_path, "[DEFAULT]state_path"),
        (str(Path(conf.compute_scheduler.journal_path).parent), "[compute_scheduler]journal_path"),
        (tempfile.gettempdir(), "temporary files"),
        (conf.log_dir, "[DEFAULT]log_dir"),
    ]
    seen_devices: set[int] = set()
    for directory, use in uses:
        if not directory:
            continue
        place = _existing(Path(directory))
        if (device := place.stat().st_dev) not in seen_devices:
            seen_devices.add(device)
            yield _diagnosis(place, f"{directory} ({use})")


def _existing(path: Path) -> Path:
    """Return the path, or the nearest directory above it that exists."""
    return next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())


def _diagnosis(place: Path, what: str) -> Diagnosis:
    numbers = os.statvfs(place)
    free_bytes = numbers.f_bavail * numbers.f_frsize
    # a file system without a table of inodes has 0 of them in all
    free_inodes = numbers.f_favail if numbers.f_files else None
    text = f"{what} has {free_bytes // 2**20} MiB free"
    text += "" if free_inodes is None else f" and {free_inodes} inodes"
    if not free_bytes or free_inodes == 0:
        return Diagnosis(Level.ERROR, "disk", f"{text}: nothing can be written. Free some")
    if free_bytes < _LEAST_BYTES or (free_inodes is not None and free_inodes < _LEAST_INODES):
        return Diagnosis(Level.WARNING, "disk", f"{text}: free some before it is full")
    return Diagnosis(Level.FINE, "disk", text)
