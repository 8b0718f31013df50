"""Hosts and their agents, looked at again and again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from compute_agent import errors
from compute_agent.manage import fleet
from compute_agent.placement.changes import ChangeFeed

if TYPE_CHECKING:
    from compute_agent.drift.instances.agents import AgentsOnBus
    from compute_agent.manage.tree_reading import ProviderLines
    from compute_agent.placement.api import PlacementApi

Tree = tuple["ProviderLines", ...]

_KINDS: Final = ("structure", "usage")


class FollowedTrees:
    """Trees of placement, of which only those are read again that changed.

    Where placement has no feed of changes, or has deleted some since, all are read.
    """

    def __init__(self, placement: PlacementApi) -> None:
        self._placement = placement
        self._feed = ChangeFeed(placement.connection)
        self._after: int | None = None
        self._trees: dict[str, Tree] = {}

    def current(self, roots: Sequence[str]) -> list[Tree]:
        """Return the trees of these roots as they are now, without those that are gone.

        :raises PlacementError: placement cannot be asked; the next call goes on from here.
        """
        changed_roots, after = self._changed_roots()
        stale_roots = [
            root
            for root in roots
            if changed_roots is None or root in changed_roots or root not in self._trees
        ]
        read_trees = {tree[0].uuid: tree for tree in fleet.trees(self._placement, stale_roots)}
        known_trees = {
            root: tree for root, tree in self._trees.items() if root not in stale_roots
        } | read_trees
        self._trees = {root: known_trees[root] for root in roots if root in known_trees}
        self._after = after
        return list(self._trees.values())

    def _changed_roots(self) -> tuple[frozenset[str] | None, int | None]:
        """Return the roots of trees that changed since the last call, None when all may have.

        :returns: and the position of now, before they are read: what changes meanwhile comes again.
        """
        after = self._after
        try:
            changes = self._feed.of_kinds(_KINDS, after, (), 0)
        except errors.ChangesPruned:
            changes = self._feed.of_kinds(_KINDS, after := None, (), 0)
        except errors.ChangesNotOffered:
            return None, None
        return None if after is None or changes.more else changes.roots, changes.last


class FollowedAgents:
    """What agents announce, from one look to the next.

    :param clock: monotonic seconds, as those of the announcements.
    """

    def __init__(self, agents: AgentsOnBus, clock: Callable[[], float] = time.monotonic) -> None:
        self._agents = agents
        self._clock = clock
        self._listening_since = clock()
        self.is_bus_away = False

    def look(self) -> fleet.HeardAgents:
        """Return what is known now; nothing while the bus is away."""
        was_away, self.is_bus_away = self.is_bus_away, self._agents.is_bus_away()
        now = self._clock()
        if was_away or self.is_bus_away:
            self._listening_since = now
        if self.is_bus_away:
            return fleet.HeardAgents({}, is_complete=False)
        patience = self._agents.patience
        last = self._agents.last()
        return fleet.HeardAgents(
            nodes={root: node for root, (at, node) in last.items() if now - at < patience},
            last_heard={root: time.time() - (now - at) for root, (at, _) in last.items()},
            is_complete=now - self._listening_since >= patience,
        )
