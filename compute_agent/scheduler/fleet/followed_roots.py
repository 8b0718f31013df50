"""Roots of hosts by layout, kept up to date by placement's feed of changes.

The first look lists all; after that only the trees are read that changed otherwise than by claims.
Where placement has no feed, where it has deleted changes since, and where many trees changed, all
are listed again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from enum import Enum
from typing import Final

from compute_agent.errors import ChangesNotOffered, ChangesPruned, PlacementTooOld
from compute_agent.placement.changes import ChangeFeed

LOG = logging.getLogger(__name__)

MOST_READ: Final = 20
"""Trees that are read one by one; two listings are cheaper than more."""

Roots = tuple[frozenset[str], frozenset[str]]


class Layout(Enum):
    """What the tree of a root is."""

    NO_HOST = "no host"
    FLAT = "flat"
    NESTED = "nested"


class FollowedRoots:
    """The roots of all hosts, and of those that have NUMA cells. Safe in several threads.

    :param listing: lists them all.
    :param layout_of: reads one tree.
    """

    def __init__(
        self, feed: ChangeFeed, listing: Callable[[], Roots], layout_of: Callable[[str], Layout]
    ) -> None:
        self._feed = feed
        self._listing = listing
        self._layout_of = layout_of
        self._lock = threading.Lock()
        self._after: int | None = None
        self._known_roots: Roots = frozenset(), frozenset()

    def current(self) -> Roots:
        """Return them as they are now.

        :raises PlacementError: placement cannot be asked; the next call goes on from here.
        """
        with self._lock:
            try:
                return self._follow()
            except (ChangesNotOffered, PlacementTooOld) as error:
                LOG.debug("The layouts of hosts are listed, not followed: %s", error)
            except ChangesPruned as error:
                LOG.info("The layouts of all hosts are listed again: %s", error)
            self._after = None
            return self._listing()

    def _follow(self) -> Roots:
        if self._after is not None:
            changes = self._feed.structure(self._after, (), 0)
            if not changes.more and len(changes.roots) <= MOST_READ:
                self._known_roots = self._with_read(changes.roots)
                self._after = changes.last
                return self._known_roots
        # the end of the feed first: what changes meanwhile is then read again
        last = self._feed.structure(None, (), 0).last
        self._known_roots, self._after = self._listing(), last
        return self._known_roots

    def _with_read(self, roots: frozenset[str]) -> Roots:
        layouts = {root: self._layout_of(root) for root in roots}
        hosts = {root for root, layout in layouts.items() if layout is not Layout.NO_HOST}
        nested_roots = {root for root, layout in layouts.items() if layout is Layout.NESTED}
        known_hosts, known_nested = self._known_roots
        return known_hosts - roots | hosts, known_nested - roots | nested_roots
