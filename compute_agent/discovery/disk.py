"""The file system that holds the guests' disks."""

from __future__ import annotations

import os

from compute_agent.discovery.errors import FactUnreadable
from compute_agent.discovery.facts import DiskStore


def discover(path: str) -> DiskStore:
    """Read the size of the file system below `path`.

    :raises FactUnreadable: `path` does not exist. Taking the file system that would hold it would
        announce the size of / for a disk that is not mounted.
    """
    try:
        status = os.statvfs(path)
    except OSError as error:
        raise FactUnreadable(path, error.strerror or str(error), error.errno) from error
    return DiskStore(path, status.f_frsize * status.f_blocks)
