"""Space and inodes of the directories that the programs of a host write to."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from compute_agent.manage.diagnosis import Diagnosis, Level
from compute_agent.programs.disk_space import Space, space_of

if TYPE_CHECKING:
    from oslo_config import cfg

_LEVELS: Final = {
    Space.ENOUGH: Level.FINE,
    Space.LITTLE: Level.WARNING,
    Space.NONE: Level.ERROR,
}


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
            space, text = space_of(place, f"{directory} ({use})")
            yield Diagnosis(_LEVELS[space], "disk", text)


def _existing(path: Path) -> Path:
    """Return the path, or the nearest directory above it that exists."""
    return next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())
