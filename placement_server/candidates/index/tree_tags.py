"""The entity tags of trees, kept until the feed of changes names their tree.

A tag is made from a tree that was read from the store. Between that read and the moment in which
the tag is kept, the follower may have passed a later change of the tree; so a reader announces it
first, and what is announced counts as much as what is kept::

    begin(7) -> token     read tree 7     finish(7, token, tag)     kept
    begin(7) -> token     read tree 7     forget(7)     finish(7, token, tag)     not kept
"""

import threading
from collections.abc import Iterable
from typing import Final

from placement_server.candidates import sizes

MOST_KEPT: Final = 32 * 1024 * 1024
"""The most bytes that are kept by default: the tags of 140,000 trees."""

_TAG_LENGTH: Final = 32


class TreeReading:
    """The announcement that a tree is being read."""


class TreeTags:
    """Tags by the id of the root, the oldest of which go first. Thread safe.

    :param most: the most bytes that are kept.
    """

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most // (sizes.ENTRY + sizes.NUMBER + sizes.text(_TAG_LENGTH))
        self._tags: dict[int, str | TreeReading] = {}
        self._lock = threading.Lock()

    def get(self, root_id: int) -> str | None:
        """Return the tag of a tree as of the last reading of the feed; `None` if it is not kept."""
        tag = self._tags.get(root_id)
        return tag if isinstance(tag, str) else None

    def begin(self, root_id: int) -> TreeReading:
        """Announce that a tree is about to be read."""
        reading = TreeReading()
        with self._lock:
            self._keep(root_id, reading)
        return reading

    def finish(self, root_id: int, reading: TreeReading, tag: str) -> None:
        """Keep the tag of a tree that was read, unless the tree has changed since."""
        with self._lock:
            if self._tags.get(root_id) is reading:
                self._keep(root_id, tag)

    def _keep(self, root_id: int, entry: str | TreeReading) -> None:
        self._tags.pop(root_id, None)
        self._tags[root_id] = entry
        if len(self._tags) > self._most:
            del self._tags[next(iter(self._tags))]

    def forget(self, root_ids: Iterable[int]) -> None:
        """Forget the tags of trees that changed."""
        with self._lock:
            for root_id in root_ids:
                self._tags.pop(root_id, None)

    def clear(self) -> None:
        """Forget all tags."""
        with self._lock:
            self._tags.clear()
