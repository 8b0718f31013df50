"""The caches of all trees of one client, and when they are written to their file."""

from __future__ import annotations

import os
import threading

from compute_agent.placement.retries import Clock
from compute_agent.report.cache import CacheFile, TreeCache


class TreeCaches:
    """Caches by root uuid.  Safe in several threads; each cache has a lock of its own.

    :param path: file that survives a restart, if any.
    """

    def __init__(self, path: str | os.PathLike[str] | None, clock: Clock) -> None:
        self._lock = threading.Lock()
        self._file = CacheFile(path, clock) if path is not None else None
        self._caches: dict[str, TreeCache] = self._file.load() if self._file is not None else {}

    def __contains__(self, root_uuid: str) -> bool:
        return root_uuid in self._caches

    def of(self, root_uuid: str) -> TreeCache:
        """Return the cache of a tree, an empty one if there was none."""
        with self._lock:
            return self._caches.setdefault(root_uuid, TreeCache(root_uuid))

    def get(self, root_uuid: str) -> TreeCache | None:
        """Return the cache of a tree if there is one."""
        with self._lock:
            return self._caches.get(root_uuid)

    def all(self) -> list[TreeCache]:
        """Return the caches of all trees."""
        with self._lock:
            return list(self._caches.values())

    def drop(self, root_uuid: str | None = None) -> None:
        """Forget one tree, or all."""
        with self._lock:
            for root in [root_uuid] if root_uuid else list(self._caches):
                self._caches.pop(root, None)

    def save_if_changed(self) -> None:
        """Write the file if something in it is outdated."""
        if any(cache.dirty for cache in self.all()):
            self._save()

    def close(self) -> None:
        """Write what was left unwritten for later."""
        if self._file is not None and self._file.is_pending:
            self._save(now=True)

    def _save(self, *, now: bool = False) -> None:
        caches = self.all()
        for cache in caches:
            cache.dirty = False
        if self._file is not None:
            self._file.save(caches, now=now)
