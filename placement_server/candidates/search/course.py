"""The course of a search in numbers, for who wants to know why there are few candidates or none."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from msgspec import Struct, field

from placement_server.candidates.index.arrays import IntArray
from placement_server.candidates.index.index import Index
from placement_server.candidates.query.query import CandidateQuery


class Course(Struct):
    """What a search reports of itself where it is asked to.

    :ivar steps: the filters in the order in which they were applied, as an answer shows them: the
        suffix of the `group`, None for what is asked of roots; the `filter` that was asked for,
        such as `resources VCPU:4` or `member_of`; `providers_left`, how many pass it and
        those of the group before it, or `trees_rejected`, how many trees lost their last way to
        serve the group.
    :ivar trees_tried: how many trees passed all filters.
    :ivar combinations_failed: the trees among these in which no combination works, by reason.
    :ivar examples: the root of one such tree, by reason.
    :ivar dead_ends: how often no provider was left for a group, by its suffix.
    """

    index: Index
    query: CandidateQuery
    steps: list[dict[str, Any]] = []
    trees_tried: int = 0
    combinations_failed: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = {}
    dead_ends: Counter[str] = field(default_factory=Counter)

    def providers_left(self, group: str, reason: str, slots: IntArray) -> None:
        """Report the slots that a filter of a group left, possibly with dead ones among them."""
        is_living = np.isin(self.index.root[slots], self.index.roots)
        self._add_step(group, reason, providers_left=int(is_living.sum()))

    def roots_rejected(self, group: str, reason: str, roots: IntArray) -> None:
        """Report the roots that lost their last way to serve a group because of `reason`."""
        if len(roots):
            self._add_step(group, reason, trees_rejected=len(roots))

    def _add_step(self, group: str, reason: str, **count: int) -> None:
        # A group may have the suffix "root" as well.
        of_roots = group == "root" and reason.startswith("root_")
        self.steps.append({"group": None if of_roots else group, "filter": reason, **count})

    def tree_rejected(self, root: int, reason: str) -> None:
        """Report a tree in which no combination works, by its root."""
        self.combinations_failed[reason] += 1
        self.examples.setdefault(reason, self.index.columns.uuid[root])

    def dead_end(self, group: int) -> None:
        """Report that no position is left for an item of a group, as the others are placed."""
        self.dead_ends[self.query.groups[group].suffix] += 1
